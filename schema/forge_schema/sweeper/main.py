"""`forge-sweeper`: the sweeper as a process, with a health endpoint."""

from forge_schema.program import lean  # it makes the imports below cheaper

# isort: split
import signal
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread

import structlog
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from forge_schema.access.tokens import hide
from forge_schema.database.connections import STATEMENT_S
from forge_schema.database.pool import Database
from forge_schema.notifications.sender import DeliverySender
from forge_schema.program import faults
from forge_schema.program import help as help_text
from forge_schema.program.log import configure_log
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.settings import SweeperSettings
from forge_schema.sweeper.sweeper import Sweeper

NAME = "forge-sweeper"
HEAD = """\
Usage: forge-sweeper [FLAG…]

Requeue expired leases, queue due jobs, mark silent workers and remove those
that stay silent, until a signal.

Each flag has a variable; flags override variables. To turn off a switch that
is on by default, use --no-…. Times are in seconds.
"""
GROUPS = {
    "The queue": ("database_url", "prepare", "lease_ttl_s"),
    "This process": ("sweep_s", "health_host", "health_port"),
    "Workers": ("offline_s", "reap_s", "unconnected_s"),
    "Running jobs": ("overrun_s", "storing_s", "preparing_s", "unserved_s", "brake"),
    "What is kept": ("store_url", "keep_jobs_days", "audit_months", "thin_after_s",
                     "thin_more_after_s"),
}  # fmt: skip
SHORTEST_S = 5.0


class ProcessSettings(SweeperSettings):
    """Requeue expired leases, promote due jobs, mark silent workers and remove dead ones."""

    model_config = SettingsConfigDict(
        cli_prog_name="forge-sweeper",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_exit_on_error=False,
    )

    health_host: str = Field("127.0.0.1", description="address to serve /health on")
    health_port: int = Field(8901, ge=0, le=65535, description="its port; 0 chooses any")


def main() -> None:
    """Run the sweeper until a signal ends it."""
    if help_text.wanted(sys.argv[1:]):
        sys.stdout.write(help_text.text(HEAD, help_text.in_groups(ProcessSettings, GROUPS)))
        return
    hide()
    configure_log()
    settings = faults.read(NAME, ProcessSettings, lambda: faults.of_command_line(ProcessSettings))
    with faults.ending(NAME):
        serve(settings)


def serve(settings: ProcessSettings) -> None:
    """Run the sweeper and its health endpoint until SIGTERM or SIGINT."""
    lean.loaded()
    # Putting into a SimpleQueue is reentrant, so a signal handler may do it at any point.
    leave: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: leave.put(number))
    url, limit_s = settings.database_url, statement_limit_s(settings.sweep_s)
    with Database(url, size=4, prepare=settings.prepare, statement_s=limit_s) as database:
        queue = Queue(database, actor="sweeper", ttl=settings.ttl)
        tick, retention = settings.tick(queue), settings.retention(queue)
        sweeper = Sweeper(
            tick, period_s=settings.sweep_s, retention=retention, sender=DeliverySender(database)
        )
        server = health_server(sweeper, settings.health_host, settings.health_port)
        Thread(target=server.serve_forever, name="health", daemon=True).start()
        sweeper.start()
        structlog.get_logger(__name__).info("sweeper_started", health=server.server_address[1])
        leave.get()
        sweeper.end()
        server.shutdown()
        server.server_close()


def statement_limit_s(period_s: float) -> float:
    """Return the statement timeout: less than a period, unless periods are very short."""
    return min(STATEMENT_S, max(SHORTEST_S, 0.8 * period_s))


def health_server(sweeper: Sweeper, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that answers 200 while the sweeper is healthy, else 503."""

    class SweeperHealth(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = sweeper.healthy
            self.send_response(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()
            self.wfile.write(b"ok\n" if good else b"no tick succeeded for three periods\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
            """Leave health checks out of the log."""

    return ThreadingHTTPServer((host, port), SweeperHealth)


if __name__ == "__main__":
    main()

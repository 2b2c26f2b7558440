"""`forge-server`: every path in one process, under uvicorn.

It records in the database that it runs: without a server, workers over HTTP cannot renew their
leases, so sweepers must not consider them dead.
"""

from forge_schema.program import lean  # it makes the imports below cheaper

# isort: split
import signal
import socket
import sys
from contextlib import closing
from ipaddress import ip_address
from threading import Thread
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import JobSpec
from forge_schema.shell import MOST_BYTES
from starlette.types import ASGIApp

from forge_functions import program
from forge_functions.app import create_app
from forge_functions.dashboard.site import install
from forge_functions.health import remember, try_store
from forge_functions.middleware.slow_clients import (
    GuardedProtocol,
    GuardedWebSocket,
    most_connections,
)
from forge_functions.middleware.turns import TakingTurns
from forge_functions.routes import bundles, health, objects, shells, token, verbs
from forge_functions.routes.metrics import metered
from forge_functions.routes.workers import join
from forge_functions.routes.workers import protocol as workers
from forge_functions.routes.workers import records as worker_records
from forge_functions.same_machine import SameMachineObjects
from forge_functions.services import Services
from forge_functions.settings import FunctionsSettings, ServerSettings

ROUTERS = (
    # First, since each request tries one after the other, and jobs may store thousands of files.
    objects.router,
    health.router,
    token.router,
    verbs.users,
    shells.router,
    bundles.router,
    verbs.admins,
    join.enrolment,
    join.router,
    workers.router,
    worker_records.router,
    # Last, since a worker's name would take the place of the words in other paths.
    verbs.fleet,
)
# Seconds for requests in progress to finish when the server stops.
GRACE_S = 10
# How long a connection may rest between requests: longer than clients and proxies keep one, or a
# request can meet the server's end of it. httpx keeps them for 5 s, most load balancers for 60.
KEEP_ALIVE_S = 75
BACKLOG = 2048
# Where TLS is ours; a proxy that has it may say so itself.
HSTS = [("Strict-Transport-Security", "max-age=31536000")]

log = structlog.get_logger(__name__)

# Records per TTL, and the fraction of a TTL without one that counts as an outage.
NOTES = 12
GAP = 1 / 4


class HttpServer(uvicorn.Server):
    """Prints its address, and ends waits and streams when it stops."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            # On stdout, so that a caller who chose any port can read it.
            print(f"listening on {url_of(self.config, listening)}", flush=True)  # noqa: T201

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._services.stopping.set()
        super().handle_exit(sig, frame)


def whole_app(settings: ServerSettings) -> FastAPI:
    """Return the app with every path."""
    app = metered(install(create_app(Services(settings), *ROUTERS)))
    app.add_middleware(TakingTurns)
    return app


def main() -> None:
    """Serve until a signal."""
    program.run(lambda: serve)


def serve(settings: FunctionsSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        DatabaseUnreachable: the database does not answer.
        NotMigrated: it does not have Forge's tables.
        StoreUrlInvalid: the store's URL does not name a store.
        StoreUnfit: Forge cannot work with the store.
        OSError: a TLS file or the address cannot be used.
    """
    # FastAPI asks of each annotation whether it is of pydantic 1, all of which it imports for that.
    sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]  # None: not to be imported
    app = whole_app(settings)
    # Here, and not in the first of the requests, which may be many at once.
    JobSpec.model_rebuild()
    lean.loaded()
    services: Services = app.state.services
    services.database  # noqa: B018 - opens it, or fails at once
    try_store(settings.store_url, services.stopping)
    remember(services.database, services.store)
    config = config_of(app, settings)
    config.load()
    if in_the_clear(settings):
        log.warning(
            "tls_missing",
            note="tokens cross the network unencrypted; give --tls-cert, or use a proxy with TLS",
        )
    with listening_socket(settings) as listening, closing(SameMachineObjects(services)) as beside:
        beside.open()
        Thread(target=keep_noting, args=[services], name="presence", daemon=True).start()
        run(HttpServer(config, services), listening)
    services.close()


def in_the_clear(settings: FunctionsSettings) -> bool:
    """Tell whether tokens cross a network unencrypted, unless there is a proxy in front."""
    return not settings.tls_cert and not is_loopback(settings.host)


def config_of(app: ASGIApp, settings: FunctionsSettings) -> uvicorn.Config:
    """Return the way in which the server serves its app."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        log_level="warning",
        access_log=False,
        server_header=False,
        headers=HSTS if settings.tls_cert else None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        http=GuardedProtocol,
        ws=GuardedWebSocket,
        ws_max_size=MOST_BYTES,
        ws_per_message_deflate=False,
        # See `forge_schema.shell.connect`.
        ws_ping_timeout=None,
        limit_concurrency=most_connections(),
    )


def run(server: HttpServer, listening: socket.socket) -> None:
    """Run a server until a signal, which is its normal end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run([listening])


def listening_socket(settings: FunctionsSettings) -> socket.socket:
    """Return a socket that listens, inherited or a new one.

    Raises:
        OSError: the address is not this machine's, or is in use; what was inherited is no socket.
    """
    host, port, inherited = settings.host, settings.port, settings.socket_fd
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if inherited is not None:
        listening = socket.socket(fileno=inherited)
    else:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # asyncio does this only for sockets that it creates; without it, every answer but the first on
    # a connection takes 40 ms longer.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(config: uvicorn.Config, listening: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if config.is_ssl else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether an address is reachable only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keep_noting(services: Services) -> None:
    """Record regularly that this server is running, until it stops."""
    ttl = services.settings.ttl
    while not services.stopping.is_set():
        try:
            services.database.rows("serve", again=True, gap=GAP * ttl)
        except ForgeError as error:
            log.warning("presence_not_noted", error=error.message)
        services.stopping.wait(ttl.total_seconds() / NOTES)


if __name__ == "__main__":
    main()

"""Workers with only a URL and a token, on a real server, with a sweeper."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.states import WorkerKind
from forge_schema.queue.queue import Queue
from forge_schema.storage import open_store
from forge_schema.sweeper.sweeper import Sweeper
from forge_schema.sweeper.tick import Tick
from support.http.server_process import ServerProcess, server_process
from support.workers.runners import require_docker
from support.workers.worker import Bed, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Variables that a worker must not need.
DIRECT = ("FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_LEASE_TTL_S", "FORGE_SWEEP_S")
# Long enough for a lease to survive a briefly busy machine.
TTL_S = 8.0


@dataclass
class HttpBed(Bed):
    """A bed whose workers are created by an admin and use `servers`, preferring the first."""

    servers: list[ServerProcess] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue = Queue(self.database, actor="user:test", ttl=timedelta(seconds=TTL_S))
        self.admin = WorkerTokens(self.database, actor="user:root")

    def speaks_to(self, server: ServerProcess, worker: Worker) -> bool:
        """Tell whether a worker's last log entry says that it uses a server."""
        said = [line for line in worker.output.splitlines() if "server_chosen" in line]
        return bool(said) and said[-1].endswith(server.url)

    def make(
        self,
        name: str = "one",
        kind: WorkerKind = WorkerKind.PERSISTENT,
        labels: dict[str, str] | None = None,
    ) -> int:
        """Create a worker, as an admin does, and return its id."""
        worker_id, token = self.admin.create(f"{name}-{self.token}", kind=kind, labels=labels)
        self.ids[name], self.tokens[name] = worker_id, token
        return worker_id

    def settings(self, name: str) -> dict[str, str]:
        if name not in self.tokens:
            self.make(name)
        given = {key: value for key, value in super().settings(name).items() if key not in DIRECT}
        return {
            **given,
            "FORGE_URL": ",".join(server.url for server in self.servers),
            "FORGE_TOKEN": self.tokens[name],
            "FORGE_RECONNECT_LIMIT_S": "1",
            # These are for the server; the test's own environment may contain them.
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
        }

    def worker_status(self, name: str = "one") -> str:
        """Return a worker's status according to the queue."""
        status: str = self.registry.worker(self.ids[name])["status"]
        return status


@contextmanager
def http_bed(
    root: Path,
    database_url: str,
    *,
    kind: str = "process",
    servers: int = 1,
    ttl_s: float = TTL_S,
    store_url: str | None = None,
    servers_store_url: str | None = None,
    **settings: object,
) -> Iterator[HttpBed]:
    """Make a bed, and check at its end that nothing is left behind. `settings` are the servers'.

    The servers may reach the store by another URL than the test.
    """
    settings = {"lease_ttl_s": ttl_s, **settings}
    if kind == "docker":
        require_docker()
    if store_url is None:
        (root / "store").mkdir()
        store_url = (root / "store").as_uri()
    with (
        Database(database_url) as database,
        ticking(database, ttl_s),
        _running(root, database_url, servers_store_url or store_url, servers, settings) as running,
    ):
        made = HttpBed(kind, root, database, open_store(store_url), servers=running)
        with made.ending():
            yield made


@contextmanager
def ticking(database: Database, ttl_s: float = TTL_S) -> Iterator[None]:
    """Run the sweeper as `forge-sweeper` does."""
    queue = Queue(database, actor="sweeper", ttl=timedelta(seconds=ttl_s))
    sweeper = Sweeper(Tick(queue), period_s=0.5)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.end()


@contextmanager
def _running(
    root: Path, database_url: str, store_url: str, count: int, settings: dict[str, object]
) -> Iterator[list[ServerProcess]]:
    if count == 0:
        yield []
        return
    # Several servers look like one to the holder of a signed URL, since they share a secret.
    settings = {"server_secret": "s" * 32, **settings}
    with (
        server_process(root, database_url, store_url, **settings) as server,
        _running(root, database_url, store_url, count - 1, settings) as others,
    ):
        yield [server, *others]

"""A queue, a store, and attempts that transfer files but run nothing, direct or over HTTP."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import psutil
from forge_client.direct.backend import DirectBackend
from forge_client.http import Server
from forge_client.http.backend import HttpBackend
from forge_client.settings import QueueConnection
from forge_client.up.postgres import Postgres
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database import migrate
from forge_schema.database.pool import Database
from forge_schema.http_client import tls_context
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Role
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.queue import Queue
from forge_schema.storage import Objects, open_store
from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.circuit_breaker import Servers
from forge_worker.queue.gateway import Gateway, SqlGateway
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import Session
from forge_worker.queue.http.store import HttpStore

from benchmarks.fleet.server import forge_server

PLENTY = Capacity(1000, 1 << 20, 1 << 20)
LIMIT_MB = 1 << 20


Connect = Callable[[], DirectBackend | HttpBackend]


@dataclass
class Way:
    """A worker's connection, a client's, and the server that both go through, if any."""

    gateway: Gateway
    http: HttpStore | None
    store_url: str
    root: Path
    queue: Queue
    server: psutil.Process | None
    client: Connect

    @property
    def served_s(self) -> float:
        """The CPU seconds of the server so far."""
        return 0.0 if self.server is None else sum(self.server.cpu_times()[:2])

    def attempt(self, bundle: str | None = None) -> tuple[LiveAttempt, Objects]:
        """Claim a job, submitted now unless one is ready."""
        if not (grants := self.gateway.finish_and_claim([], PLENTY, 1)[1]):
            spec = JobSpec(name="j", owner="ann", command=["true"], bundle_digest=bundle)
            self.queue.submit([spec])
            self.gateway.new_work()
            grants = self.gateway.finish_and_claim([], PLENTY, 1)[1]
        attempt = LiveAttempt(grants[0], Folders(self.root / str(grants[0].fence.token)))
        attempt.folders.make()
        return attempt, self.http.of(attempt) if self.http else open_store(self.store_url)


@contextmanager
def way(root: Path, *, over_http: bool, store_url: str | None = None) -> Iterator[Way]:
    """Start a Postgres and, over HTTP, a server; the store is a folder unless one is given."""
    (root / "store").mkdir(parents=True)
    url = store_url or (root / "store").as_uri()
    postgres = Postgres(root / "pg")
    postgres.start()
    with ExitStack() as held:
        held.callback(postgres.stop)
        migrate.upgrade(postgres.url)
        database = held.enter_context(Database(postgres.url))
        queue = Queue(database, actor="user:ann")
        machine = Machine(uuid4(), 1000, 1 << 20, 1 << 20)
        if not over_http:
            direct = SqlGateway(database, name="w", ttl=timedelta(hours=9), store=open_store(url))
            direct.register(machine)
            reach = QueueConnection(postgres.url, url)
            client: Connect = partial(DirectBackend, reach, owner="ann")
            yield Way(direct, None, url, root, queue, None, client)
            return
        os.environ |= {"FORGE_LEASE_TTL_S": "36000", "FORGE_HEARTBEAT_S": "3600"}
        server = held.enter_context(forge_server(postgres.url, root, url))
        token = WorkerTokens(database, actor="user:root").create("w")[1]
        session = Session(Servers([server.base], longest_pause_s=1.0), lambda: token, tls_context())
        held.callback(session.close)
        http = HttpStore(session, tls_context())
        held.callback(http.close)
        gateway = HttpGateway(session)
        gateway.register(machine)
        key = Keys(database, actor="user:root").create("ann", Role.SUBMITTER)[1]
        client = partial(HttpBackend, Server(server.base, key))
        yield Way(gateway, http, url, root, queue, server.seen, client)

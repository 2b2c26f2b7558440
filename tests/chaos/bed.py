"""The bed of a run: all the processes and services that it starts, and that faults hit."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from chaos.clients.job_mix import OWNERS
from chaos.clients.over_http import HttpSubmitter
from chaos.dice import dice_of
from chaos.evidence.history import History
from chaos.migration import migrated
from chaos.parts import own_containers
from chaos.parts.door import Door, Doors, doors
from chaos.parts.fleet import (
    Fleet,
    Worker,
    broken_shell,
    kind_of,
    server,
    small_disk,
    sweeper,
    worker,
)
from chaos.parts.inputs import JobInputs, job_inputs
from chaos.parts.namespace import Namespace, namespace
from chaos.parts.object_store import ObjectStore, Way, object_store
from chaos.parts.old_version import OldVersion, old_version
from chaos.parts.pooler import ROLE as POOLED_ROLE
from chaos.parts.pooler import Pooler, pooler_is_here
from chaos.parts.postgres_pair import Pair, postgres_pair
from chaos.parts.proxy import Proxy
from forge_client.project.bundle import pack
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from forge_schema.queue.inputs import Uploads
from forge_schema.queue.registry import Registry
from forge_schema.storage import keys, open_store
from support.http import nginx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.options import Options
    from chaos.parts.member import Member
    from support.engine.own_engine import OwnEngine

# Proxies to the database: for two groups of workers, the pooler, the servers, the clients.
TO_DATABASE = ("db-a", "db-b", "db-pool", "db-server", "db-client")
TO_SERVERS = ("http-0", "http-1")
# One in this many workers is in the namespace.
APART = 5


@dataclass
class Bed:
    """The services and their addresses. `url` leads to the current database, past all proxies."""

    options: Options
    history: History
    doors: Doors
    pair: Pair
    store: ObjectStore
    inputs: JobInputs
    pooler: Pooler | None = None
    proxy: Proxy | None = None
    engines: tuple[OwnEngine, ...] = ()
    space: Namespace | None = None
    old: OldVersion | None = None
    small_disk: bool = False
    early: list[int] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    servers: list[Member] = field(default_factory=list)
    sweepers: list[Member] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.pair.primary.url

    @property
    def members(self) -> list[Member]:
        between = [one for one in (self.pooler, self.proxy) if one is not None]
        return [*between, *self.servers, *self.sweepers, *self.workers]

    def door(self, name: str) -> Door:
        return next(door for door in self.doors.all if door.name == name)

    def way(self, name: str) -> Way:
        return next(way for way in self.store.ways if way.name == name)

    @property
    def token(self) -> str:
        return self.options.token

    def engine_of(self, worker: Worker) -> OwnEngine:
        """Return the engine that a worker uses."""
        url = worker.environment["DOCKER_HOST"]
        return next(one for one in self.engines if one.url == url)

    @property
    def struck_engines(self) -> dict[str, OwnEngine]:
        """The engines that faults hit, by their names: no other run's."""
        return {one.name: one for one in (self.options.engines[:1] or self.engines)}

    def worker(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name)

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    def through(self, name: str) -> str:
        """Return the database's URL through a proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.door(name).port}/forge"

    def find_primary(self) -> None:
        """Point all proxies at the current primary."""
        for name in TO_DATABASE:
            self.doors.lead(self.door(name), self.pair.primary.port)

    def over_http(self) -> HttpSubmitter:
        """Create a key, and return a client that submits with it."""
        with Database(self.url) as database:
            key = Keys(database, actor="user:root").create("root", Role.ADMIN)[1]
        authority = self.proxy.authority if self.proxy else None
        return HttpSubmitter(self.server_urls, key, authority)

    @property
    def server_urls(self) -> list[str]:
        """The addresses at which workers and clients reach the servers."""
        if self.proxy is not None:
            return [self.proxy.url]
        return [f"http://127.0.0.1:{self.door(name).port}" for name in TO_SERVERS]

    def project(self) -> str:
        """Store a small project for all owners, and return its digest."""
        folder = self.options.folder / "project"
        folder.mkdir()
        (folder / "data.txt").write_text("data\n" * 1000, encoding="utf-8")
        bundle = pack(folder, self.options.folder / "project.tar.zst", limit_bytes=1 << 20)
        open_store(self.store.url).put_file(keys.bundle(bundle.digest), bundle.path)
        with Database(self.url) as database:
            for owner in OWNERS:
                Uploads(database).add(owner, bundle.digest)
        return bundle.digest


@contextmanager
def bed(options: Options) -> Iterator[Bed]:
    """Start everything but the fleet's processes, and stop it all when the block ends."""
    with ExitStack() as stack:
        logs = options.folder / "logs"
        logs.mkdir()
        store = stack.enter_context(object_store(logs, dice_of(options.seed, "store")))
        made = Bed(
            options,
            History(options.folder / "history.jsonl"),
            stack.enter_context(doors(dice_of(options.seed, "doors"))),
            stack.enter_context(postgres_pair(options.folder / "postgres")),
            store,
            job_inputs(options.folder / "inputs", store.data),
        )
        stack.callback(lambda: fleet_of(made).kill_all())
        for name in TO_DATABASE:
            made.doors.make(name, made.pair.primary.port)
        made.old = old_version(options.folder / "old") if options.old else None
        migrated(made)
        made.space = stack.enter_context(namespace())
        made.engines = options.engines or tuple(
            stack.enter_context(own_containers.engine_with_image(kind))
            for kind in own_containers.kinds(podman=options.podman)
            if options.containers and own_containers.engine_may_run()
        )
        if pooler_is_here():
            with psycopg.connect(made.url, autocommit=True) as admin:
                admin.execute(f"CREATE ROLE {POOLED_ROLE} LOGIN IN ROLE postgres".encode())
            made.pooler = Pooler(options.folder / "pooler", logs, made.door("db-pool").port)
        _add_services(made)
        _add_workers(made, stack)
        yield made


def _pooled(made: Bed, otherwise: str) -> dict[str, object]:
    """Return the database's URL through the pooler, or through a proxy if there is no pooler."""
    if made.pooler is None:
        return {"database_url": made.through(otherwise)}
    return {"database_url": made.pooler.url, "prepare": False}


def _add_services(made: Bed) -> None:
    root = made.options.folder
    secret = {"server_secret": secrets.token_hex(32)}
    ways = (made.through("db-server"), None)
    for number, (way, url) in enumerate(zip(made.store.ways, ways, strict=True)):
        to_database = {"database_url": url} if url else _pooled(made, "db-server")
        settings: dict[str, object] = {**secret, **to_database, "store_url": way.url}
        one, port = server(number, root, **settings)
        if made.options.proxy and made.old is not None:
            one.also = made.old.environment
        made.servers.append(one)
        made.doors.make(TO_SERVERS[number], port)
    if made.options.proxy and (program := nginx.program()):
        ports = [made.door(name).port for name in TO_SERVERS]
        made.proxy = Proxy(program, root / "proxy", root / "logs", ports)
    made.sweepers += [
        sweeper(0, root, database_url=made.through("db-server")),
        sweeper(1, root, **_pooled(made, "db-b")),
    ]


def _add_workers(made: Bed, stack: ExitStack) -> None:
    with Database(made.url) as database:
        tokens = WorkerTokens(database, actor="user:root")
        queue_id = str(Registry(database, actor="user:root").queue_id())
        for number in range(made.options.workers):
            # Both queues have workers at each engine.
            kind = kind_of(number) if number >= len(made.engines) else "container"
            if kind == "container" and not made.engines:
                kind = "direct"
            settings = _settings(made, number, kind)
            name = f"w{number}"
            if kind == "http":
                settings["token"] = tokens.create(f"{name}-{made.token}")[1]
            one = worker(name, kind, f"{name}-{made.token}", made.options.folder, **settings)
            one.queue_id = queue_id
            _fit_out(made, one, stack)
            if made.space is not None and number % APART == APART - 1 and kind != "container":
                one.enter(made.space.enter)
            made.workers.append(one)


def _settings(made: Bed, number: int, kind: str) -> dict[str, object]:
    inputs = made.inputs.settings(made.store.ways[number % 2].passage.url)
    if kind == "http":
        urls = made.server_urls[:: 1 if number % 2 else -1]
        trusted = {"tls_ca": made.proxy.authority} if made.proxy else {}
        labels = "place=process"
        return {"url": ",".join(urls), "labels": labels, **trusted, **inputs}
    settings: dict[str, object] = {
        "database_url": made.through("db-b" if number % 2 else "db-a"),
        "store_url": made.store.ways[number % 2].url,
        "sweep": number % 3 == 0,
        "sweep_s": 2,
        "labels": "place=process",
        **inputs,
    }
    if kind == "pooled":
        settings |= _pooled(made, "db-a")
    if kind == "container":
        settings |= {
            "runner": "docker",
            "network": "none",
            "labels": "place=container",
        }
        settings |= {"default_image": own_containers.IMAGE, "allow_processes": False}
    return settings


def _fit_out(made: Bed, one: Worker, stack: ExitStack) -> None:
    """Give a worker its disk or its engine, and record where it must leave nothing behind."""
    assert one.place is not None
    if one.kind == "small disk":
        made.small_disk = stack.enter_context(small_disk(one.place))
        one.environment["FORGE_DISK_MB"] = "40"
    if one.kind == "broken":
        one.environment["PATH"] = broken_shell(made.options.folder / "broken")
    made.history.note("folder", path=str(one.place))
    if one.kind == "container":
        engines = sorted(made.engines, key=lambda engine: engine.url)
        before = sum(other.kind == "container" for other in made.workers)
        engine = engines[before % len(engines)]
        one.environment["DOCKER_HOST"] = engine.url
        made.history.note("engine", url=engine.url, labels=one.labels)


def fleet_of(made: Bed) -> Fleet:
    """Return the supervisor of a bed's processes."""
    return Fleet(made.members)

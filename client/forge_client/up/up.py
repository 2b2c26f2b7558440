"""`forge up`: a whole Forge in one folder, for as long as this process lives."""

import gc
import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from forge_worker import linux

from forge_client.errors import ClientError
from forge_client.running import FILE, Running
from forge_client.up.child_process import ChildProcess, StopSignals
from forge_client.up.children import WORKER, Say, UpServer, Workers
from forge_client.up.detached import UpOptions, kill_children, locked
from forge_client.up.folder_access import STORE, close, made
from forge_client.up.postgres import Postgres, require_usable

if TYPE_CHECKING:
    from forge_client.direct.backend import DirectBackend

LOOK_S = 0.25
DATABASE_LOOK_S = 5.0
# It loads Alembic and SQLAlchemy.
MIGRATE = "forge_schema.database.migrate"


def up(plan: UpOptions, say: Say, ready: Callable[[Running], None]) -> None:
    """Start everything, supervise it until told to stop, and stop it again.

    Args:
        plan: what to start.
        say: called with a line for each step.
        ready: called once the database is up, with the addresses; what else there is loads then,
            and commands wait for it.

    Raises:
        ClientError: another `forge up` is using the folder, or something does not start.
    """
    require_usable(plan.dir)
    made(plan.dir)
    with locked(plan.dir), StopSignals() as asked:
        # Not before: it would shut out the Postgres of one that runs.
        close(plan.dir)
        # A file left by a killed `forge up` is stale.
        (plan.dir / FILE).unlink(missing_ok=True)
        kill_children(plan.dir)
        _serve(plan, asked, say, ready)


def _serve(plan: UpOptions, asked: StopSignals, say: Say, ready: Callable[[Running], None]) -> None:
    server = UpServer(plan.dir, port=plan.port, say=say)
    server.listen()
    with _postgres(plan.dir, say) as postgres, _withdrawn(plan, postgres, server) as running:
        # A new one takes as long as everything else does, an existing one a tenth of that.
        fresh = postgres.fresh
        if not fresh:
            _begin(postgres, running, ready)
        workers = _workers(plan, running)
        with _backend(running) as backend:
            # There are no threads or connections before this.
            gc.freeze()
            server.load(running.database_url, running.store_url)
            for worker in workers:
                worker.load()
            group = Workers(workers, backend, say)
            upkeep = Upkeep(server, postgres, say)
            try:
                if fresh:
                    _begin(postgres, running, ready)
                # Whoever asks the server meanwhile waits until it can say which workers there are.
                trouble = group.start(asked)
                server.start()
                running.loaded(trouble)
                while not asked.wait(LOOK_S):
                    group.look_after()
                    upkeep()
            finally:
                # Jobs can be inspected and cancelled until the last one has ended.
                group.stop(asked, upkeep)
                server.stop()


@contextmanager
def _withdrawn(plan: UpOptions, postgres: Postgres, server: UpServer) -> Iterator[Running]:
    """Yield what is to be announced, and withdraw it at the end."""
    (plan.dir / STORE).mkdir(exist_ok=True)
    running = Running(
        dir=plan.dir,
        pid=os.getpid(),
        database_url=postgres.url,
        store_url=(plan.dir / STORE).as_uri(),
        version=version("forge-queue"),
        url=server.url,
        token=server.token,
        loading=True,
    )
    try:
        yield running
    finally:
        running.withdraw()


def _begin(postgres: Postgres, running: Running, ready: Callable[[Running], None]) -> None:
    """Start the database, and say so: commands wait for the rest."""
    _start_database(postgres)
    running.announce()
    ready(running)


@contextmanager
def _postgres(folder: Path, say: Say) -> Iterator[Postgres]:
    postgres = Postgres(folder / "postgres")
    try:
        postgres.begin()
        yield postgres
    finally:
        postgres.stop()
        say("stopped")


def _backend(running: Running) -> "DirectBackend":
    from forge_client.direct.backend import DirectBackend  # noqa: PLC0415 - slow
    from forge_client.settings import QueueConnection  # noqa: PLC0415 - slow

    connection = QueueConnection(running.database_url, running.store_url, running.dir)
    return DirectBackend(connection, owner="up")


def _start_database(postgres: Postgres) -> None:
    from forge_schema.database.current import is_current  # noqa: PLC0415 - slow

    from forge_client.direct import translated  # noqa: PLC0415 - slow

    if postgres.fresh:
        # It loads while Postgres creates its files.
        with upgrading() as upgrade, translated():
            postgres.start()
            upgrade(postgres.url)
        return
    postgres.start()
    with translated():
        if not is_current(postgres.url):
            with upgrading() as upgrade:
                upgrade(postgres.url)


def _workers(plan: UpOptions, running: Running) -> list[ChildProcess]:
    logs = plan.dir / "logs"
    logs.mkdir(exist_ok=True)
    stem = _stem(plan.dir)
    return [_worker(f"{stem}-{n}", plan, running) for n in range(1, plan.workers + 1)]


def _stem(folder: Path) -> str:
    # A worker finds the leftovers of its earlier boots by its name, so workers of different
    # folders must not have the same name.
    host = socket.gethostname().partition(".")[0] or "local"
    return f"{host}-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:4]}"


def _worker(name: str, plan: UpOptions, running: Running) -> ChildProcess:
    folder = plan.dir / "workers" / name
    own = {
        "FORGE_DATABASE_URL": running.database_url,
        # The user's environment may name a server, but a worker has only one way to the queue.
        "FORGE_URL": "",
        "FORGE_STORE_URL": running.store_url,
        "FORGE_EXEC_URL": running.url,
        "FORGE_WORKER_DIR": str(folder),
        "FORGE_WORKER_NAME": name,
        "FORGE_LOCAL": "true",
        "FORGE_ALLOW_PROCESSES": "true",
        "FORGE_ALLOW_BUILDS": os.environ.get("FORGE_ALLOW_BUILDS", "true"),
        # A job without an image finds this environment's Python first.
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        ),
    }
    log = plan.dir / "logs" / f"{name}.log"
    gangs = {"FORGE_GANG_NETWORK": plan.gang_network} if plan.gang_network else {}
    return ChildProcess(name, WORKER, folder, log, {**_share(plan), **gangs, **own})


def _share(plan: UpOptions) -> dict[str, str]:
    """Return each worker's share of the machine, if it is not the whole machine."""
    cpus, memory_mb = plan.cpus, plan.memory_mb
    if plan.workers > 1:
        # A job needs one CPU if it does not say otherwise.
        there = int(min(psutil.virtual_memory().total, linux.memory_limit()))
        cpus = cpus or max(1.0, min(psutil.cpu_count() or 1, linux.cpu_limit()) / plan.workers)
        memory_mb = memory_mb or max(256, (there >> 20) // plan.workers)
    given = {"FORGE_CPUS": cpus, "FORGE_MEMORY_MB": memory_mb}
    return {
        name: f"{value:g}" if name == "FORGE_CPUS" else str(value)
        for name, value in given.items()
        if value
    }


class Upkeep:
    """Restarts the server and Postgres if they die; called regularly."""

    def __init__(self, server: UpServer, postgres: Postgres, say: Say) -> None:
        self._server = server
        self._postgres = postgres
        self._say = say
        self._next_look = time.monotonic() + DATABASE_LOOK_S

    def __call__(self) -> None:
        """Check both."""
        self._server.look_after()
        if time.monotonic() >= self._next_look:
            self._look_after_database()
            self._next_look = time.monotonic() + DATABASE_LOOK_S

    def _look_after_database(self) -> None:
        try:
            if self._postgres.start_again():
                self._say("Postgres crashed and was restarted")
        except ClientError as error:
            # Whatever the cause, it may be temporary; the workers keep their results meanwhile.
            self._say(f"{error.message}; retrying")


@contextmanager
def upgrading() -> Iterator[Callable[[str], None]]:
    """Have a process load what an upgrade needs, and yield the function that upgrades a database.

    The process ends with the block, and soon after this one if that is killed.
    """
    context = get_context("fork")
    gate, theirs = context.Pipe()
    child = context.Process(target=_run, args=(gate, theirs))
    child.start()
    theirs.close()

    def upgrade(url: str) -> None:
        try:
            gate.send(url)
            error = gate.recv()
        except (EOFError, OSError):
            raise ClientError(
                "the process that upgrades the database has died",
                hint="run `forge up` again: the upgrade continues where it ended",
            ) from None
        if error is not None:
            raise error

    try:
        yield upgrade
    finally:
        gate.close()
        child.join()


def _run(theirs: Connection, gate: Connection) -> None:
    theirs.close()
    migrate = import_module(MIGRATE)
    try:
        url = gate.recv()
    except EOFError:
        return
    try:
        migrate.upgrade(url)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised there
        gate.send(error)
    else:
        gate.send(None)

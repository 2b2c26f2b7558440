"""The direct transport: the worker speaks to the database and to the store itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from forge_schema.database import Database
from forge_schema.queue import Queue
from forge_schema.storage import Store, open_store
from forge_schema.sweep import Sweep
from forge_schema.sweeper import Sweeper

from forge_worker.agent import Agent
from forge_worker.gateway import SqlGateway
from forge_worker.link import Link
from forge_worker.listener import Listener
from forge_worker.settings import WorkerSettings
from forge_worker.tidy import Tidier


@contextmanager
def transport(settings: WorkerSettings) -> Iterator[Link]:
    """Open database and store, and close them when the block ends.

    Raises:
        ForgeError: one of them does not answer, or is not what it should be.
    """
    with Database(settings.database_url, size=8, prepare=settings.prepare) as database:
        store = open_store(settings.store_url)
        store.check()
        gateway = SqlGateway(database, name=settings.name(), ttl=settings.ttl)
        yield Link(gateway, lambda _: store, partial(_loops, settings, database, store, gateway))


@contextmanager
def _loops(
    settings: WorkerSettings, database: Database, store: Store, gateway: SqlGateway, agent: Agent
) -> Iterator[None]:
    tidier = Tidier(store)
    tidier.start()
    try:
        with hints(settings, gateway, agent), sweeping(settings, database):
            yield
    finally:
        tidier.end()


@contextmanager
def hints(settings: WorkerSettings, gateway: SqlGateway, agent: Agent) -> Iterator[None]:
    """Listen to the database while the block runs."""

    def work() -> None:
        gateway.new_work()
        agent.claimer.wake()

    def asked(worker_id: str) -> None:
        if worker_id == str(agent.worker_id):
            agent.keeper.wake()

    listener = Listener(settings.database_url, work=work, asked=asked)
    listener.start()
    try:
        yield
    finally:
        listener.end()


@contextmanager
def sweeping(settings: WorkerSettings, database: Database) -> Iterator[None]:
    """Sweep in the background while the block runs, where the settings want it."""
    if not settings.sweep:
        yield
        return
    queue = Queue(database, actor=f"worker:{settings.name()}", ttl=settings.ttl)
    sweeper = Sweeper(Sweep(queue), period_s=settings.sweep_s)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.end()

"""The direct transport: the worker speaks to the database and to the store itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from forge_schema.queue.queue import Queue
from forge_schema.storage import Store, open_store
from forge_schema.sweeper.sweeper import Sweeper
from forge_schema.sweeper.tick import Sweep, Windows

from forge_worker.agent.agent import LEAVE_S, Agent
from forge_worker.agent.tidy import Tidier
from forge_worker.link import Link
from forge_worker.queue.circuit_breaker import RestedDatabase
from forge_worker.queue.gateway import SqlGateway
from forge_worker.queue.listener import Listener
from forge_worker.settings.settings import WorkerSettings

# What finds no connection so long is tried again later; the pool itself gives up by then.
PATIENCE_S = 5.0


@contextmanager
def transport(settings: WorkerSettings) -> Iterator[Link]:
    """Open database and store, and close them when the block ends.

    Raises:
        ForgeError: one of them does not answer, or is not what it should be.
    """
    with _database(settings, 8) as database, _database(settings, 1) as renewals:
        store = open_store(settings.store_url)
        store.check()
        gateway = SqlGateway(
            database, name=settings.name(), ttl=settings.ttl, store=store, renewals=renewals
        )
        yield Link(gateway, lambda _: store, partial(_loops, settings, database, store, gateway))


def _database(settings: WorkerSettings, size: int) -> RestedDatabase:
    return RestedDatabase(
        settings.database_url,
        size=size,
        prepare=settings.prepare,
        patience_s=PATIENCE_S,
        # One left alone for longer could not be renewed at in time once it is back.
        longest_pause_s=min(settings.reconnect_limit_s, settings.lease_ttl_s / 4),
    )


@contextmanager
def _loops(
    settings: WorkerSettings,
    database: RestedDatabase,
    store: Store,
    gateway: SqlGateway,
    agent: Agent,
) -> Iterator[None]:
    tidier = Tidier(store)
    tidier.start()
    try:
        with hints(settings, database, gateway, agent), sweeping(settings, database):
            yield
    finally:
        tidier.end(LEAVE_S)


@contextmanager
def hints(
    settings: WorkerSettings, database: RestedDatabase, gateway: SqlGateway, agent: Agent
) -> Iterator[None]:
    """Listen to the database while the block runs."""

    def work() -> None:
        gateway.new_work()
        agent.claimer.wake()

    def asked(worker_id: str) -> None:
        if worker_id == str(agent.worker_id):
            agent.keeper.wake()

    heed = {"awake": database.awake, "back": gateway.came_back}
    listener = Listener(settings.database_url, work=work, asked=asked, **heed)
    listener.start()
    try:
        yield
    finally:
        listener.end()


@contextmanager
def sweeping(settings: WorkerSettings, database: RestedDatabase) -> Iterator[None]:
    """Sweep in the background while the block runs, where the settings want it."""
    if not settings.sweep:
        yield
        return
    queue = Queue(database, actor=f"worker:{settings.name()}", ttl=settings.ttl)
    windows = Windows(offline=timedelta(seconds=settings.offline_s))
    sweep = Sweep(queue, windows=windows, every=timedelta(seconds=settings.sweep_s))
    sweeper = Sweeper(sweep, period_s=settings.sweep_s)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.end()

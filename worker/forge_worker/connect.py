"""Connect to the queue and the store: over SQL on a trusted network, or over HTTP with a token."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol

import structlog
from forge_schema.database.pool import Database
from forge_schema.http_client import in_the_clear, tls_context
from forge_schema.signing import Signing, read_signing_key
from forge_schema.storage import Objects, Store, StoreError, open_store
from forge_schema.storage.probe import delete_abandoned
from forge_schema.wake import Hint

from forge_worker.attempt import LiveAttempt
from forge_worker.circuit_breaker import CircuitBreaker, CircuitOpen, Refusals, Servers
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway, SqlGateway
from forge_worker.queue.hints import HttpHints, Listener
from forge_worker.settings.settings import WorkerSettings

# How long a statement waits for a free connection before it is retried later.
PATIENCE_S = 5.0

log = structlog.get_logger(__name__)


Called = Callable[[str], None]

TIDY_PERIOD_S = 86_400.0
# An unfinished upload older than this is abandoned: none takes so long.
UNFINISHED_S = 2 * 86_400.0


def _deaf(_shell: str) -> None:
    """Ignore a call."""


class Loops(Protocol):
    """The loops that a transport runs beside the agent."""

    def __call__(
        self, *, work: Callable[[], None], asked: Callable[[], None], called: Called = ...
    ) -> AbstractContextManager[None]:
        """Run the loops while the block runs.

        Args:
            work: called when there may be new jobs.
            asked: called when the queue has a request for this worker or one of its jobs.
            called: called with the id of a shell that a caller wants in a job here.
        """


@dataclass(frozen=True, slots=True)
class WorkerTransport:
    """A connection to the queue and the store, direct or over HTTP."""

    gateway: Gateway
    objects: Callable[[LiveAttempt], Objects]
    loops: Loops
    refusals: Refusals


def connect(settings: WorkerSettings) -> AbstractContextManager[WorkerTransport]:
    """Open the transport that the settings name, and close it when the block ends.

    Raises:
        ForgeError: the database or the store does not answer or is misconfigured.
        CertificatesUnusable: the certificate file contains no certificate.
        SigningKeyUnusable: the file of the signing key contains none.
    """
    return _over_http(settings) if settings.url else _direct(settings)


@contextmanager
def _direct(settings: WorkerSettings) -> Iterator[WorkerTransport]:
    refusals = Refusals()
    breaker = _breaker(settings, refusals)
    with (
        _database(settings, 8, breaker) as database,
        # Renewals have their own connection, so that other statements cannot delay them.
        _database(settings, 1, _breaker(settings, refusals)) as renewals,
    ):
        store = open_store(settings.store_url)
        store.check()
        gateway = SqlGateway(
            database,
            name=settings.name(),
            ttl=settings.ttl,
            store=store,
            renewals=renewals,
            hears=settings.prepare,
        )

        @contextmanager
        def loops(
            *, work: Callable[[], None], asked: Callable[[], None], called: Called = _deaf
        ) -> Iterator[None]:
            listener = _listener(
                settings, gateway, breaker, refusals, work=work, asked=asked, called=called
            )
            # Behind a pooler, hints reach whoever holds the server's session.
            hears = _running(listener) if settings.prepare else nullcontext()
            with _running(StoreTidier(store)), hears, _ticking(settings, database, store):
                yield

        yield WorkerTransport(gateway, lambda _: store, loops, refusals)


def _listener(
    settings: WorkerSettings,
    gateway: SqlGateway,
    breaker: CircuitBreaker,
    refusals: Refusals,
    *,
    work: Callable[[], None],
    asked: Callable[[], None],
    called: Called,
) -> Listener:
    def asked_of(worker_id: str) -> None:
        if worker_id == str(gateway.worker_id):
            asked()

    def called_in(hint: Hint) -> None:
        if gateway.worker_id in hint.workers:
            called(hint.shell)

    return Listener(
        settings.database_url,
        work=work,
        asked=asked_of,
        awake=breaker.check,
        back=gateway.came_back,
        # Every hint: the worker's next claim may be for another reason.
        news=gateway.new_work,
        wakes=gateway.wakes,
        called=called_in,
        refusals=refusals,
    )


def _breaker(settings: WorkerSettings, refusals: Refusals) -> CircuitBreaker:
    # After a longer pause, leases could not be renewed in time once the database is back.
    longest_s = min(settings.reconnect_limit_s, settings.lease_ttl_s / 4)
    return CircuitBreaker("the database", longest_pause_s=longest_s, refusals=refusals)


def _database(settings: WorkerSettings, size: int, breaker: CircuitBreaker) -> Database:
    return Database(
        settings.database_url,
        size=size,
        prepare=settings.prepare,
        patience_s=PATIENCE_S,
        guard=breaker.guard,
    )


@contextmanager
def _ticking(settings: WorkerSettings, database: Database, store: Store) -> Iterator[None]:
    if not settings.sweep:
        yield
        return
    from forge_schema.notifications.sender import DeliverySender  # noqa: PLC0415 - nobody else's
    from forge_schema.queue.queue import Queue  # noqa: PLC0415 - as above
    from forge_schema.sweeper.retention import Retention  # noqa: PLC0415 - as above
    from forge_schema.sweeper.sweeper import Sweeper  # noqa: PLC0415 - as above
    from forge_schema.sweeper.tick import Tick, Windows  # noqa: PLC0415 - as above

    queue = Queue(database, actor=f"worker:{settings.name()}", ttl=settings.ttl)
    windows = Windows(offline=timedelta(seconds=settings.offline_s))
    tick = Tick(queue, windows=windows, every=timedelta(seconds=settings.sweep_s))
    days = settings.keep_jobs_days
    sweeper = Sweeper(
        tick,
        period_s=settings.sweep_s,
        retention=Retention(database, actor=queue.actor, store=store, jobs_days=days),
        sender=DeliverySender(database),
        logged=(CircuitOpen,),
    )
    sweeper.start()
    try:
        yield
    finally:
        sweeper.end()


@contextmanager
def _over_http(settings: WorkerSettings) -> Iterator[WorkerTransport]:
    # Its messages' models are a twentieth of a worker's start.
    from forge_worker.queue.http.gateway import HttpGateway  # noqa: PLC0415 - as above
    from forge_worker.queue.http.session import Session  # noqa: PLC0415 - as above
    from forge_worker.queue.http.store import HttpStore, WaitingObjects  # noqa: PLC0415 - as above

    tls = tls_context(settings.tls_ca, verify=not settings.insecure_skip_verify)
    _warn_of_readers(settings)
    servers = Servers(settings.url, longest_pause_s=settings.reconnect_limit_s)
    key_file = settings.signing_key_file
    signing = Signing(read_signing_key(key_file)) if key_file else None
    with (
        closing(Session(servers, settings.worker_token, tls, signing=signing)) as session,
        closing(HttpStore(session, tls)) as store,
    ):
        gateway = HttpGateway(session)

        def loops(
            *, work: Callable[[], None], asked: Callable[[], None], called: Called = _deaf
        ) -> AbstractContextManager[None]:
            new_work = partial(_new_work, gateway, work)
            return _running(HttpHints(session, work=new_work, asked=asked, called=called))

        def objects(attempt: LiveAttempt) -> Objects:
            # Without a lease, only the inputs can be read.
            return store.of(attempt) if attempt.fence.token else WaitingObjects(store, attempt)

        yield WorkerTransport(gateway, objects, loops, servers.refusals)


def _warn_of_readers(settings: WorkerSettings) -> None:
    if settings.insecure_skip_verify:
        log.warning(
            "certificates_not_checked",
            note="anyone on the network path can read the worker's token and give it code to run."
            " --insecure-skip-verify is for development alone.",
        )
    for url in filter(in_the_clear, settings.url):
        log.warning("token_unencrypted", note="use https", url=url)


def _new_work(gateway: Gateway, work: Callable[[], None]) -> None:
    # This comes first, so that the following claim searches every queue.
    gateway.new_work()
    work()


@contextmanager
def _running(loop: Loop) -> Iterator[None]:
    loop.begin()
    try:
        yield
    finally:
        loop.end()


class StoreTidier(Loop):
    """Removes from the store what killed writers left unfinished: at the start, then daily."""

    name = "tidy"
    shares = True

    def __init__(self, store: Store) -> None:
        super().__init__(TIDY_PERIOD_S)
        self._store = store

    def step(self) -> None:
        try:
            removed = self._store.tidy(UNFINISHED_S)
            delete_abandoned(self._store)
        except StoreError as error:
            log.warning("store_tidy_failed", error=error.message)
            return
        if removed:
            log.info("store_tidied", unfinished=removed)

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """Have it end; a look that is under way is not waited for."""
        self._ending.set()
        self.wake()

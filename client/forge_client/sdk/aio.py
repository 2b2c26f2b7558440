"""The SDK for asyncio: each call is made in a thread, and a job is waited for without one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from forge_client.cli.logs.reader import LogReading, Part, Piece
from forge_client.client import Client
from forge_client.sdk.job import Job, Texts
from forge_client.sdk.spec import NamedSpec
from forge_client.sdk.sweeps import Sweep
from forge_client.sdk.watch import QUICKEST_S

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class _Wraps(Protocol[H_co]):
    @property
    def sync(self) -> H_co: ...


class _Threaded(Generic[H, P, R, S]):
    """A method of the wrapped object, called in a thread, with its result converted."""

    def __init__(self, method: Callable[Concatenate[H, P], R], convert: Callable[[R], S]) -> None:
        self._method, self._convert = method, convert
        self.__doc__ = method.__doc__

    def __get__(
        self, wrapping: _Wraps[H], _owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, S]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> S:
            found = await asyncio.to_thread(self._method, wrapping.sync, *args, **kwargs)
            return self._convert(found)

        return call


def _as_it_is(
    method: Callable[Concatenate[H, P], R],
) -> _Threaded[H, P, R, R]:
    return _Threaded(method, lambda found: found)


class AsyncJob:
    """A job by its id, for asyncio; `await job` waits for its result.

    `sync` is the same job with methods that block. A coroutine that is cancelled stops waiting;
    neither the job nor a request that was already sent is.
    """

    def __init__(self, job: Job) -> None:
        self.sync = job
        self.id = job.id

    def __repr__(self) -> str:
        return f"AsyncJob({self.id})"

    def __await__(self) -> Generator[Any, None, Any]:
        return self.sync.__await__()

    async def result(self) -> Any:  # noqa: ANN401 - whatever it found
        """Wait until the job succeeds, and return what it found, as `await job` does."""
        return await self

    async def logs(
        self, *, follow: bool = False, rank: int | None = None, attempt: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the output as text, as `Job.logs` does."""
        texts, pause = Texts(), QUICKEST_S
        reading = LogReading(
            self.sync.backend, await self.status(), Part(rank=rank, attempt=attempt)
        )
        over = False
        while not over:
            # In this order: the output of an ended attempt is stored before its end.
            over = not follow or (await self.status()).terminal
            pieces = await asyncio.to_thread(_new, reading, final=over)
            for piece in pieces:
                yield texts.of(piece)
            pause = QUICKEST_S if pieces else min(pause * 1.3, self.sync.backend.slowest_s)
            if not over:
                await asyncio.sleep(pause)
        for rest in texts.rest():
            yield rest
        if reading.damaged and not follow:
            raise reading.damaged

    status = _as_it_is(Job.status)
    done = _as_it_is(Job.done)
    wait = _as_it_is(Job.wait)
    watch = _as_it_is(Job.watch)
    tail = _as_it_is(Job.tail)
    explain = _as_it_is(Job.explain)
    cancel = _as_it_is(Job.cancel)
    retry = _as_it_is(Job.retry)
    preempt = _as_it_is(Job.preempt)
    exec = _as_it_is(Job.exec)
    code = _as_it_is(Job.code)
    attempts = _as_it_is(Job.attempts)
    events = _as_it_is(Job.events)
    approve = _as_it_is(Job.approve)
    found = _as_it_is(Job.found)
    metrics = _as_it_is(Job.metrics)
    last_metrics = _as_it_is(Job.last_metrics)
    curves = _as_it_is(Job.curves)
    tests = _as_it_is(Job.tests)
    artifacts = _as_it_is(Job.artifacts)
    checkpoints = _as_it_is(Job.checkpoints)
    download = _as_it_is(Job.download)

    async def rerun(
        self, command: Sequence[str] | str | None = None, **changes: Unpack[NamedSpec]
    ) -> "AsyncJob":
        """Submit the job again, as `Job.rerun` does."""
        return AsyncJob(await asyncio.to_thread(self.sync.rerun, command, **changes))

    async def diff(self, other: "AsyncJob | Path | str" = ".") -> str:
        """Return the diff of the job's code and another's, as `Job.diff` does."""
        theirs = other.sync if isinstance(other, AsyncJob) else other
        return await asyncio.to_thread(self.sync.diff, theirs)


def _new(reading: LogReading, *, final: bool) -> list[Piece]:
    return list(reading.new(final=final))


def _each(jobs: Iterable[Job]) -> list[AsyncJob]:
    return [AsyncJob(job) for job in jobs]


class AsyncSweep:
    """A sweep by its name, for asyncio; `sync` is the same with methods that block."""

    def __init__(self, sweep: Sweep) -> None:
        self.sync = sweep
        self.name = sweep.name

    def __repr__(self) -> str:
        return f"AsyncSweep({self.name!r})"

    states = _as_it_is(Sweep.states)
    points = _as_it_is(Sweep.points)
    jobs = _Threaded(Sweep.jobs, _each)
    wait = _as_it_is(Sweep.wait)
    watch = _as_it_is(Sweep.watch)
    limit = _as_it_is(Sweep.limit)
    cancel = _as_it_is(Sweep.cancel)
    compare = _as_it_is(Sweep.compare)


class AsyncClient:
    """A `Client` for asyncio, with the same arguments and methods; each is a coroutine.

    `sync` is the client that it calls.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        database_url: str | None = None,
        store_url: str | None = None,
        up_dir: Path | str | None = None,
        owner: str | None = None,
    ) -> None:
        self.sync = Client(
            url=url,
            api_key=api_key,
            database_url=database_url,
            store_url=store_url,
            up_dir=up_dir,
            owner=owner,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    close = _as_it_is(Client.close)
    submit = _Threaded(Client.submit, AsyncJob)
    submit_many = _Threaded(Client.submit_many, _each)
    map = _Threaded(Client.map, _each)
    benchmark = _Threaded(Client.benchmark, AsyncSweep)
    sweep = _Threaded(Client.sweep, AsyncSweep)
    test = _Threaded(Client.test, AsyncJob)
    run_handler = _Threaded(Client.run_handler, AsyncJob)
    job = _Threaded(Client.job, AsyncJob)
    jobs = _as_it_is(Client.jobs)
    runs = _as_it_is(Client.runs)
    run_groups = _as_it_is(Client.run_groups)
    experiments = _as_it_is(Client.experiments)
    dashboard = _as_it_is(Client.dashboard)

    schedule = _as_it_is(Client.schedule)
    schedules = _as_it_is(Client.schedules)
    pause_schedule = _as_it_is(Client.pause_schedule)
    resume_schedule = _as_it_is(Client.resume_schedule)
    remove_schedule = _as_it_is(Client.remove_schedule)
    templates = _as_it_is(Client.templates)
    keep_template = _as_it_is(Client.keep_template)
    remove_template = _as_it_is(Client.remove_template)

    notifications = _as_it_is(Client.notifications)
    add_notification = _as_it_is(Client.add_notification)
    remove_notification = _as_it_is(Client.remove_notification)
    test_notification = _as_it_is(Client.test_notification)
    delivery = _as_it_is(Client.delivery)
    deliveries = _as_it_is(Client.deliveries)
    retry_deliveries = _as_it_is(Client.retry_deliveries)
    notifier = _as_it_is(Client.notifier)
    set_notifier = _as_it_is(Client.set_notifier)

    workers = _as_it_is(Client.workers)
    drain = _as_it_is(Client.drain)
    create_worker = _as_it_is(Client.create_worker)
    add_worker = _as_it_is(Client.add_worker)
    rotate_worker = _as_it_is(Client.rotate_worker)
    delete_worker = _as_it_is(Client.delete_worker)
    queues = _as_it_is(Client.queues)
    pause = _as_it_is(Client.pause)
    resume = _as_it_is(Client.resume)
    limit_queue = _as_it_is(Client.limit_queue)
    owners = _as_it_is(Client.owners)
    limit_owner = _as_it_is(Client.limit_owner)
    approvals = _as_it_is(Client.approvals)
    approve = _as_it_is(Client.approve)
    keys = _as_it_is(Client.keys)
    create_key = _as_it_is(Client.create_key)
    rotate_key = _as_it_is(Client.rotate_key)
    revoke_key = _as_it_is(Client.revoke_key)
    events = _as_it_is(Client.events)
    reports = _as_it_is(Client.reports)
    report = _as_it_is(Client.report)
    overview = _as_it_is(Client.overview)
    health = _as_it_is(Client.health)

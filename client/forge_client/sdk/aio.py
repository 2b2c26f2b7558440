"""The SDK for asyncio: each call is made in a thread, and a job is waited for without one.

Its methods are made from those of the SDK. `aio.pyi`, which is generated, has their types.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from functools import wraps
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from forge_client.results.log_reader import LogPart, LogPiece, LogReading, Texts
from forge_client.sdk.client import Client
from forge_client.sdk.job import Job
from forge_client.sdk.sending import Place, called_at, place_of_call
from forge_client.sdk.spec import NamedSpec
from forge_client.sdk.sweeps import Sweep
from forge_client.sdk.watch import QUICKEST_S

C = TypeVar("C")
# A future, and a context, are those of threads.
ONLY_SYNC = {"future", "port"}


def _made_from(kind: type) -> Callable[[type[C]], type[C]]:
    """Give a class the public methods of another one, which it has as `sync`, as coroutines."""

    def made(wrapping: type[C]) -> type[C]:
        for name, method in getmembers(kind, isfunction):
            if not name.startswith("_") and name not in {*vars(wrapping), *ONLY_SYNC}:
                setattr(wrapping, name, _threaded(method))
        return wrapping

    return made


def _threaded(method: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def made(place: Place, wrapping: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method
        token = called_at.set(place)
        try:
            return _wrapped(await asyncio.to_thread(method, wrapping.sync, *args, **kwargs))
        finally:
            called_at.reset(token)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:  # noqa: ANN401 - as the method
        # A coroutine may be awaited elsewhere, or become a task.
        return made(place_of_call(), *args, **kwargs)

    return call


def _wrapped(value: Any) -> Any:  # noqa: ANN401 - whatever the method returns
    if isinstance(value, Job):
        return AsyncJob(value)
    if isinstance(value, Sweep):
        return AsyncSweep(value)
    # Rows are lists too, and have none of these.
    if type(value) is list and value and isinstance(value[0], Job):
        return [AsyncJob(job) for job in value]
    return value


@_made_from(Job)
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
            self.sync.backend, await self.status(), LogPart(rank=rank, attempt=attempt)
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

    async def rerun(
        self, command: Sequence[str] | str | None = None, **changes: Unpack[NamedSpec]
    ) -> "AsyncJob":
        """Submit the job again, as `Job.rerun` does."""
        return AsyncJob(await asyncio.to_thread(self.sync.rerun, command, **changes))

    async def diff(self, other: "AsyncJob | Path | str" = ".") -> str:
        """Return the diff of the job's code and another's, as `Job.diff` does."""
        theirs = other.sync if isinstance(other, AsyncJob) else other
        return await asyncio.to_thread(self.sync.diff, theirs)


def _new(reading: LogReading, *, final: bool) -> list[LogPiece]:
    return list(reading.new(final=final))


@_made_from(Sweep)
class AsyncSweep:
    """A sweep by its name, for asyncio; `sync` is the same with methods that block."""

    def __init__(self, sweep: Sweep) -> None:
        self.sync = sweep
        self.name = sweep.name

    def __repr__(self) -> str:
        return f"AsyncSweep({self.name!r})"


@_made_from(Client)
class AsyncClient:
    """A `Client` for asyncio, with the same arguments and methods; each is a coroutine.

    `sync` is the client that it calls.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        tls_ca: Path | str | None = None,
        database_url: str | None = None,
        store_url: str | None = None,
        up_dir: Path | str | None = None,
        owner: str | None = None,
    ) -> None:
        self.sync = Client(
            url=url,
            api_key=api_key,
            tls_ca=tls_ca,
            database_url=database_url,
            store_url=store_url,
            up_dir=up_dir,
            owner=owner,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

"""One process that acts for a part of the fleet: heartbeats, looks for work, ends of jobs."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter
from typing import TypeVar

import psutil
import structlog
from forge_schema.wake import Hint

from benchmarks.fleet.transports import (
    SWEEP_S,
    Direct,
    OverHttp,
    Transport,
    hear_database,
    streams,
)
from benchmarks.fleet.world import Simulated

# The defaults of workers.
HEARTBEAT_S, POLL_S = 30.0, 5.0
# How long jobs take, on average: those with a GPU, and those of the workers that wait.
GPU_JOB_S, SMALL_JOB_S = 600.0, 10.0

T = TypeVar("T")


@dataclass
class Done:
    """What a process did: how long each heartbeat, each look and each end took, in seconds."""

    beats: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    claimed: int = 0
    ticks: int = 0
    failed: list[str] = field(default_factory=list)
    # Asked and not answered when the time was over.
    waiting_beats: int = 0
    waiting_looks: int = 0
    cpu_s: float = 0.0


def serve(pipe: Connection, url: str, base: str | None, fleet: Sequence[Simulated]) -> None:
    """Connect, say so, run for as many seconds as is answered, and send what was done."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(_serve(pipe, url, base, fleet))


async def _serve(pipe: Connection, url: str, base: str | None, fleet: Sequence[Simulated]) -> None:
    hints = {one.id: asyncio.Event() for one in fleet}
    async with _transport(url, base, fleet, hints) as transport:
        pipe.send("ready")
        seconds = await asyncio.to_thread(pipe.recv)
        done = Done()
        acts = [_beats(transport, one, done) for one in fleet]
        acts += [_work(transport, one, hints[one.id], done) for one in fleet]
        if base is None:
            acts += [_sweeps(transport, done) for _ in fleet]
        before = sum(psutil.Process().cpu_times()[:2])
        tasks = [asyncio.create_task(act) for act in acts]
        await asyncio.sleep(seconds)
        done.cpu_s = sum(psutil.Process().cpu_times()[:2]) - before
        pipe.send(done)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _transport(
    url: str, base: str | None, fleet: Sequence[Simulated], hints: dict[int, asyncio.Event]
) -> AsyncIterator[Transport]:
    if base is not None:
        http = OverHttp(base)
        async with streams(base, fleet, lambda worker_id: hints[worker_id].set()):
            yield http
        await http.close()
        return

    direct = Direct(url)

    def heard(hint: Hint) -> None:
        for worker_id in direct.sleepers.woken(hint, hints.keys()):
            hints[worker_id].set()

    listening = asyncio.create_task(hear_database(url, heard))
    yield direct
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
    direct.close()


async def _beats(transport: Transport, worker: Simulated, done: Done) -> None:
    await asyncio.sleep(random.uniform(0, HEARTBEAT_S))  # noqa: S311  no secret
    while True:
        done.waiting_beats += 1
        took = await _timed(transport.beat(worker), done.beats, done)
        done.waiting_beats -= 1
        await asyncio.sleep(max(0.0, HEARTBEAT_S - took))


async def _work(transport: Transport, worker: Simulated, hint: asyncio.Event, done: Done) -> None:
    job_s = GPU_JOB_S if worker.has_gpu else SMALL_JOB_S
    first = True
    while True:
        ended, hinted = worker.fence, False
        if ended:
            await asyncio.sleep(random.expovariate(1 / job_s))
        else:
            pause_s = random.uniform(0, POLL_S) if first else POLL_S  # noqa: S311  as above
            hinted = await _hinted(hint, pause_s)
        first = False
        done.waiting_looks += 1
        hint.clear()
        claim = transport.claim(worker, ended, hinted=hinted)
        held = await _answer(claim, done.ends if ended else done.looks, done)
        done.waiting_looks -= 1
        worker.fence = held
        done.claimed += held is not None


async def _sweeps(transport: Transport, done: Done) -> None:
    await asyncio.sleep(random.uniform(0, SWEEP_S))  # noqa: S311  no secret
    while True:
        await _answer(transport.tick(), [], done)
        done.ticks += 1
        await asyncio.sleep(SWEEP_S)


async def _hinted(hint: asyncio.Event, pause_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            return await hint.wait()
    return False


async def _timed(act: Awaitable[object], times: list[float], done: Done) -> float:
    began = perf_counter()
    await _answer(act, times, done)
    return perf_counter() - began


async def _answer(act: Awaitable[T], times: list[float], done: Done) -> T | None:
    began = perf_counter()
    try:
        answer = await act
    except Exception as error:  # noqa: BLE001  it is counted, and a worker goes on
        done.failed.append(type(error).__name__)
        return None
    times.append(perf_counter() - began)
    return answer

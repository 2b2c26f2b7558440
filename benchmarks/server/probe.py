"""A process of its own that asks a server the same questions again and again, and times them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import quantiles
from time import perf_counter

from benchmarks.fleet.world import Simulated
from benchmarks.server.messages import beat
from benchmarks.server.wire import Wire

PAUSE_S = 0.05
LIST = "/api/v1/queue/jobs"
BEAT = "/api/v1/workers/heartbeat"
# A client would have given up.
LATE_S = 30.0


@dataclass
class Seen:
    """What a worker and another owner saw, in milliseconds, and how many answers were refusals."""

    beats: list[float] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def text(self) -> str:
        return f"{p95(self.beats):.0f}, {p95(self.lists):.0f} ms; {self.refused} refused"


def p95(took: list[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(took, n=20)[-1] if len(took) > 1 else float("nan")


@contextmanager
def probing(base: str, worker: Simulated, user: dict[str, str], cores: set[int]) -> Iterator[Seen]:
    """Probe from other cores than the attacker's while the block runs.

    What was seen is there afterwards.
    """
    seen = Seen()
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_probe, args=(theirs, base, worker, user, cores), daemon=True)
    process.start()
    ours.recv()
    try:
        yield seen
    finally:
        ours.send(None)
        found: Seen = ours.recv()
        process.join()
        seen.beats, seen.lists, seen.refused = found.beats, found.lists, found.refused


def _probe(
    theirs: "Connection[object, object]",
    base: str,
    worker: Simulated,
    user: dict[str, str],
    cores: set[int],
) -> None:
    os.sched_setaffinity(0, cores)
    asyncio.run(_ask_on(theirs, base, worker, user))


async def _ask_on(
    theirs: "Connection[object, object]", base: str, worker: Simulated, user: dict[str, str]
) -> None:
    # Another address than the attacker's, as another machine has.
    wire, seen = Wire(base, "127.0.0.2"), Seen()
    questions = (
        ("POST", BEAT, {"X-Worker-Token": worker.token}, beat(worker), seen.beats),
        ("GET", LIST, user, None, seen.lists),
    )
    for method, path, headers, body, _ in questions:
        await wire.ask(method, path, headers, body)
    theirs.send(None)
    while not theirs.poll():
        for method, path, headers, body, took in questions:
            began = perf_counter()
            try:
                async with asyncio.timeout(LATE_S):
                    answer = await wire.ask(method, path, headers, body)
            except TimeoutError:
                answer = None
            took.append(1000 * (perf_counter() - began))
            seen.refused += answer is None or answer.status != 200
        await asyncio.sleep(PAUSE_S)
    theirs.recv()
    theirs.send(seen)

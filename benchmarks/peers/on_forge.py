"""Forge: the verbs of its worker, and the whole worker where sixteen jobs run at once."""

import logging
import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import psycopg
import structlog
from forge_side import ForgeSide
from worker_side import worker
from workload import sweep

from benchmarks.peers.answering import answer

URL = os.environ["PEERS_URL"]
BATCH, AT_ONCE = 100, 16


class Sides:
    """Opened when first used: `prepare` comes before."""

    side: ForgeSide | None = None

    @classmethod
    def get(cls) -> ForgeSide:
        cls.side = cls.side or ForgeSide(URL)
        return cls.side


def enqueue(jobs: int, size: int) -> float:
    """Submit jobs and return the seconds."""
    side = Sides.get()
    specs = sweep(jobs)
    began = perf_counter()
    for start in range(0, jobs, size):
        side.queue.submit(specs[start : start + size])
    return perf_counter() - began


def drain(mode: str) -> list[float]:
    """Pass all jobs; return how many and the seconds."""
    if mode == "sixteen":
        return _worker()
    side, done, began = Sides.get(), 0, perf_counter()
    while got := side.turn(1 if mode == "one" else BATCH):
        done += got
    return [done, perf_counter() - began]


def dispatch(times: int) -> float:
    """Return the milliseconds from submit to claim."""
    return 1000 * median(Sides.get().dispatch(times))


def waiting(side: ForgeSide) -> int:
    """Return how many jobs are ready."""
    with psycopg.connect(side.url) as connection:
        row = connection.execute("SELECT count(*) FROM ready").fetchone()
    return int(row[0]) if row else 0


def _worker() -> list[float]:
    side = Sides.get()
    # The worker always holds as many as it has slots; those are not counted.
    jobs = waiting(side) - 2 * AT_ONCE
    with (
        TemporaryDirectory(prefix="forge-peers-") as root,
        worker(URL, Path(root), slots=AT_ONCE) as pass_on,
    ):
        began = perf_counter()
        pass_on(jobs, 0)
        seconds = perf_counter() - began
    side.drain()
    return [jobs, seconds]


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    answer({"enqueue": enqueue, "drain": drain, "dispatch": dispatch})

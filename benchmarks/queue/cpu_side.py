"""A queue in a process of its own, which tells what a verb cost: `python -m cpu_side URL [floor]`.

A line asks for a verb, a line answers with the nanoseconds of Python and of its backends.
"""

import gc
import json
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time_ns

import psycopg
import structlog
from enqueue import PAYLOADS, raw_rate
from forge_side import ForgeSide
from raw_side import RawSide
from worker_side import worker
from workload import sweep

Cost = tuple[int, int]


class CpuSide:
    """A queue that is measured."""

    def __init__(self, url: str, *, floor: bool) -> None:
        if floor:
            RawSide.make(url)
        self._side: ForgeSide | RawSide = RawSide(url) if floor else ForgeSide(url)
        self._work: Callable[[int, int], int] | None = None
        self._held = ExitStack()
        self._asking = psycopg.connect(url, autocommit=True)

    def feed(self, jobs: int, owners: int) -> Cost:
        """Have this many more jobs ready."""
        if owners > 1 and isinstance(self._side, ForgeSide):
            self._side.limit()
        self._side.feed(jobs, owners)
        return 0, 0

    def drain(self) -> Cost:
        """Take everything out of `ready`."""
        self._side.drain()
        return 0, 0

    def pass_on(self, jobs: int, count: int) -> Cost:
        """Claim and end jobs, `count` in a call."""
        return self._cost(lambda: self._side.pass_on(jobs, count))

    def submit(self, jobs: int, size: int) -> Cost:
        """Submit jobs that all differ, `size` in a call."""
        if isinstance(self._side, RawSide):
            connection = self._side.connection
            return self._cost(lambda: raw_rate(connection, PAYLOADS[:jobs], size))
        queue, specs = self._side.queue, sweep(jobs)

        def submits() -> None:
            for start in range(0, jobs, size):
                queue.submit(specs[start : start + size])

        return self._cost(submits)

    def work(self, jobs: int, _: int) -> Cost:
        """Have the real worker run jobs; from then on, it claims whatever is ready."""
        if self._work is None:
            root = Path(self._held.enter_context(TemporaryDirectory(prefix="forge-bench-")))
            self._work = self._held.enter_context(worker(self._side.url, root))
        work = self._work
        return self._cost(lambda: work(jobs, 0))

    def end(self) -> None:
        """Have the real worker leave."""
        self._held.close()

    def dispatch(self, times: int) -> Cost:
        """Return the nanoseconds from submit to claim, twice."""
        took = int(1e9 * median(self._side.dispatch(times)))
        return took, took

    def _cost(self, act: Callable[[], object]) -> Cost:
        gc.collect()
        backends, python = self._backends(), process_time_ns()
        act()
        return process_time_ns() - python, self._backends() - backends

    def _backends(self) -> int:
        rows = self._asking.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
        # Of finer grain than the ticks of /proc/PID/stat.
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in rows)


def main() -> None:
    """Answer until stdin ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    side = CpuSide(sys.argv[1], floor="floor" in sys.argv)
    for line in sys.stdin:
        verb, *numbers = json.loads(line)
        print(json.dumps(getattr(side, verb)(*numbers)), flush=True)
    side.end()


if __name__ == "__main__":
    main()

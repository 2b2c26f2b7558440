"""Take the worker away under a job, again and again, and print how long the job stood."""

import argparse
import os
import platform
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.recovery.bed import (
    CHECKPOINT_S,
    HEARTBEAT_S,
    POLL_S,
    SWEEP_S,
    TTL_S,
    Bed,
    bed,
    until,
)
from benchmarks.zombie.worker import Worker

# Steps after which the job has checkpoints to lose something since.
SOME_STEPS = 60
LIMIT_S = TTL_S + SWEEP_S


@dataclass(frozen=True)
class Took:
    """Seconds from the fault; `lost` in seconds of the job's own work."""

    started: float
    made_up: float
    lost: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="how often each is done")
    times = parser.parse_args().times
    with TemporaryDirectory(prefix="forge-recovery-") as folder, bed(Path(folder)) as made:
        killed = [once(made, Worker.kill) for _ in range(times)]
        told = [once(made, Worker.terminate) for _ in range(times)]
    print(
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, {times} times each: "
        f"lease {TTL_S:g} s, heartbeat {HEARTBEAT_S:g} s, sweep {SWEEP_S:g} s, poll {POLL_S:g} s, "
        f"checkpoint {CHECKPOINT_S:g} s\n"
    )
    print(f"| from the fault, s (median, least to most) | kill -9 | of {LIMIT_S:g} s | SIGTERM |")
    print("|---|---|---|---|")
    row("to the next attempt's first step", killed, told, lambda took: took.started)
    row("to the step at which it was hit", killed, told, lambda took: took.made_up)
    row("work done twice", killed, told, lambda took: took.lost)


def once(made: Bed, strike: Callable[[Worker], None]) -> Took:
    """Have a job run on one of two workers, strike that worker, and see the other go on."""
    made.fill()
    run = made.submit()
    run.wait(1, SOME_STEPS)
    # Anywhere between two heartbeats.
    time.sleep(random.uniform(0, HEARTBEAT_S))  # noqa: S311  no secret
    worker = made.holder(run)
    struck = time.time()
    strike(worker)
    again = run.wait(2, 0)
    last = run.last(1)
    caught_up = run.wait(2, last["step"])
    made.queue.cancel(run.job_id)
    until(lambda: not worker.alive)
    return Took(
        started=again["at"] - struck,
        made_up=caught_up["at"] - struck,
        lost=caught_up["at"] - again["at"],
    )


def row(what: str, killed: list[Took], told: list[Took], of: Callable[[Took], float]) -> None:
    """Print one row of the table."""
    ratio = spread([of(took) / LIMIT_S for took in killed])
    print(f"| {what} | {spread(list(map(of, killed)))} | {ratio} | {spread(list(map(of, told)))} |")


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()

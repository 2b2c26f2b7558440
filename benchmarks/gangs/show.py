"""Submit the jobs as they arrive, wait for their ends, and print what the database tells."""

import argparse
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from forge_schema.database.pool import Database
from forge_schema.queue.queue import Queue

from benchmarks.gangs.bed import PLACES, WORKERS, bed
from benchmarks.gangs.evidence import Evidence
from benchmarks.gangs.mix import LARGEST, SMALLEST, Arrival, arrivals
from benchmarks.gangs.promises import broken
from benchmarks.zombie.stage import until

OPEN = """
    SELECT (SELECT count(*) FROM job) - (SELECT count(*) FROM outcome)
        + (SELECT count(*) FROM draft) + (SELECT count(*) FROM forming) AS open
"""


def main() -> int:
    """Run once, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--singles", type=int, default=500)
    parser.add_argument("--gangs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=120, help="within which they arrive")
    parser.add_argument("--limit", type=float, default=900, help="seconds until all must be over")
    asked = parser.parse_args()
    jobs = arrivals(asked.seed, asked.singles, asked.gangs, asked.seconds)
    with TemporaryDirectory(prefix="forge-gangs-") as folder, bed(Path(folder)) as database:
        submit(Queue(database, actor="user:ann"), jobs)
        until(lambda: not unfinished(database), asked.limit - asked.seconds)
        found = Evidence(database.url)
    print(
        f"Seed {asked.seed}: {asked.singles} single jobs and {asked.gangs} gangs within"
        f" {asked.seconds:g} s on {WORKERS} workers with {PLACES} places each; all over after"
        f" {found.seconds:.0f} s. Python {platform.python_version()}, load"
        f" {os.getloadavg()[0]:.1f}\n"
    )
    show(found)
    violations = broken(found)
    print("\n".join(["", *violations, f"{len(violations)} promises broken"]))
    return 1 if violations else 0


def submit(queue: Queue, jobs: list[Arrival]) -> None:
    """Submit each job when it arrives."""
    began = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began + job.at_s - time.monotonic()))
        queue.submit([job.spec])


def unfinished(database: Database) -> int:
    """Return how much is not over yet: jobs, and drafts."""
    with database.connection() as connection:
        row = connection.execute(OPEN).fetchone()
    return int(row["open"]) if row else 0


def show(found: Evidence) -> None:
    """Print the waits by size, and what workers and members waited for."""
    print("| jobs | number | waited, s (median, longest) | later jobs before it (median, most) |")
    print("|---|---|---|---|")
    for nodes in (1, *range(SMALLEST, LARGEST + 1)):
        name = f"gangs of {nodes}" if nodes > 1 else "single"
        waits, overtaken = found.waits(nodes), found.overtaken(nodes)
        print(f"| {name} | {len(waits)} | {spread(waits)} | {spread(overtaken, 0)} |")
    kept, late = found.kept(), found.kept(formed=True)
    share = sum(kept + late) / (WORKERS * PLACES * found.seconds)
    shared = found.shared()
    again = sum(lease["attempt"] > 1 for lease in found.leases)
    print("\n| besides | number | s (median, longest) |\n|---|---|---|")
    for what, values in (
        ("place kept free for a gang until it formed", kept),
        ("place kept free after that", late),
        ("lease of a member waits for its worker", found.fetching()),
        ("prepared member waits for the others", found.gathering()),
    ):
        print(f"| {what} | {len(values)} | {spread(values)} |")
    print(f"\n{100 * share:.1f} % of the time of all places was kept free for gangs.")
    print(f"Two gangs ran at once {len(shared)} times, {sum(map(bool, shared))} of these on shared")
    print(f"workers, up to {max(shared, default=0)}. Attempts beyond the first: {again}.")


def spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "none"
    return f"{median(values):.{digits}f}, {max(values):.{digits}f}"

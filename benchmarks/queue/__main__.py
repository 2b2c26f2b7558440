"""The queue against raw Postgres on one durable server: `make bench`, or `--quick` for a glance."""

import argparse
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from statistics import median

import psycopg
from cluster import cluster, database, pgbench_tps
from conditions import backlog, history, snapshot
from enqueue import submits
from forge_side import ForgeSide
from measure import Compared, compared
from raw_side import RawSide

Condition = Callable[[ForgeSide, int], AbstractContextManager[None]]
# Short rounds and many: what disturbs a shared machine lasts longer than one, and falls on both.
SINGLES, BATCHED, DISPATCHED = 50, 1_000, 3


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--submits", action="store_true", help="nothing but submits")
    asked = parser.parse_args()
    quick = asked.quick
    rounds, scale = (25, 10) if quick else (151, 1)
    with cluster() as url:
        with psycopg.connect(url) as connection:
            version = connection.execute("SHOW server_version").fetchone()
        print(f"Postgres {version[0] if version else '?'}, Python {platform.python_version()}\n")
        tps = pgbench_tps(url, 2 if quick else 10)
        print(f"pgbench, one client, one durable INSERT: {tps:.0f} a second\n")
        print("| what | Forge | compared with | ratio | middle half | target | met |")
        print("|---|---|---|---|---|---|---|")
        for row, other in submits(database(url, "submits"), database(url, "raw_submits"), rounds):
            print(line(row, other), flush=True)
        if asked.submits:
            return
        for row in against_raw(url, rounds):
            print(line(row, "raw"), flush=True)
        for number, (name, condition, jobs) in enumerate(CONDITIONS):
            for row in under(url, f"c{number}", name, condition, jobs // scale, rounds):
                print(line(row, "without"), flush=True)


CONDITIONS: list[tuple[str, Condition, int]] = [
    ("1,000,000 finished jobs", history, 1_000_000),
    ("200,000 ready jobs", backlog, 200_000),
    ("a snapshot held while 100,000 jobs passed", snapshot, 100_000),
]


def against_raw(url: str, rounds: int) -> Iterator[Compared]:
    """Compare Forge with the raw table, each in a database of its own."""
    forge, raw = ForgeSide(database(url, "forge")), RawSide(database(url, "raw"))
    yield from three("", forge, raw, rounds, RAW_TARGETS)
    forge.close()
    raw.close()


def under(  # noqa: PLR0917 - one block of the table
    url: str, place: str, name: str, condition: Condition, jobs: int, rounds: int
) -> Iterator[Compared]:
    """Compare Forge under a condition with Forge without, on the same server."""
    with_it, without = ForgeSide(database(url, place)), ForgeSide(database(url, f"{place}_not"))
    with_it.feed(1)
    with condition(with_it, jobs):
        yield from three(f"{name}: ", with_it, without, rounds, SAME)
    with_it.close()
    without.close()


Target = tuple[str, Callable[[float], bool]]
RAW_TARGETS: tuple[Target, Target, Target] = (
    ("at least 0.7", lambda r: r >= 0.7),
    ("at least 0.2", lambda r: r >= 0.2),
    ("at most 2", lambda r: r <= 2),
)
SAME: tuple[Target, Target, Target] = (
    ("at least 0.9", lambda r: r >= 0.9),
    ("at least 0.9", lambda r: r >= 0.9),
    ("at most 1.1", lambda r: r <= 1.1),
)


def three(
    prefix: str,
    one: ForgeSide,
    other: ForgeSide | RawSide,
    rounds: int,
    targets: tuple[Target, Target, Target],
) -> Iterator[Compared]:
    """Compare one at a time, batches, and dispatch."""
    for what, count, jobs, (target, meets) in (
        ("jobs/s, one at a time", 1, SINGLES, targets[0]),
        ("jobs/s, batches of 100", 100, BATCHED, targets[1]),
    ):
        for side in (one, other):
            side.feed((rounds + 1) * jobs + 100)
        yield compared(
            f"{prefix}{what}",
            partial(one.rate, jobs, count),
            partial(other.rate, jobs, count),
            rounds=rounds,
            target=target,
            meets=meets,
        )
    if isinstance(other, RawSide):
        # The raw table knows no urgent jobs.
        for side in (one, other):
            side.drain()
    target, meets = targets[2]
    yield compared(
        f"{prefix}ms from submit to claim",
        lambda: 1000 * median(one.dispatch(DISPATCHED)),
        lambda: 1000 * median(other.dispatch(DISPATCHED)),
        rounds=rounds,
        target=target,
        meets=meets,
    )


def line(row: Compared, other: str) -> str:
    """Return a row of the table."""
    return (
        f"| {row.what} | {row.one:,.4g} | {other} {row.other:,.4g} | {row.ratio:.2f} "
        f"| {row.low:.2f} to {row.high:.2f} | {row.target} | {'yes' if row.met else 'NO'} |"
    )


if __name__ == "__main__":
    main()

"""The queue against a floor of raw Postgres: `make bench`, or `--quick` for a glance.

With `--only`, one part of the table. `conditions` compares Forge with itself, and takes longest.
With `--before`, the CPU time beside that of another checkout; with `--cpu`, of the floor.
"""

import argparse
import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psycopg
import structlog
from clients import Clients
from cluster import cluster, database, pgbench_tps
from conditions import backlog, history, snapshot
from cpu import beside
from enqueue import submits
from forge_side import ForgeSide
from measure import Compared, Target, at_least, at_most, compared, rate
from raw_side import RawSide
from worker_side import worker
from workload import OWNERS

Condition = Callable[[ForgeSide, int], AbstractContextManager[None]]
# Short rounds and many: what disturbs a shared machine lasts longer than one, and falls on both.
SINGLES, BATCHED, DISPATCHED, WORKED = 50, 500, 3, 640
CLIENTS = 4
PARTS = ("floor", "submits", "worker", "conditions")


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--only", choices=PARTS, action="append", help="may be repeated")
    parser.add_argument("--owners", type=int, default=OWNERS, help="the owners of the jobs")
    parser.add_argument("--no-limit", action="store_true", help="no owner has a limit")
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--cpu", action="store_true", help="CPU time beside that of the floor")
    asked = parser.parse_args()
    if asked.before or asked.cpu:
        tree = asked.before and asked.before.resolve()
        for line in beside(tree, 9 if asked.quick else 31):
            print(line, flush=True)
        return
    wanted, limited = asked.only or PARTS[:3], not asked.no_limit
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rounds, scale = (9, 10) if asked.quick else (61, 1)
    with cluster() as url:
        head(url, 2 if asked.quick else 10)
        if "floor" in wanted:
            show(against_floor(url, rounds, asked.owners, limited=limited), "floor")
        if "submits" in wanted:
            places = database(url, "submits"), database(url, "raw_submits")
            show(submits(*places, rounds), "floor")
        if "worker" in wanted:
            show(real_worker(url, rounds, asked.owners, limited=limited), "batches of 100")
        if "conditions" in wanted:
            for number, (name, condition, jobs) in enumerate(CONDITIONS):
                show(under(url, f"c{number}", name, condition, jobs // scale, rounds), "without")


def head(url: str, seconds: int) -> None:
    """Print what all figures depend on, and the table's head."""
    with psycopg.connect(url) as connection:
        version = connection.execute("SHOW server_version").fetchone()
    print(f"Postgres {version[0] if version else '?'}, Python {platform.python_version()}\n")
    tps = pgbench_tps(url, seconds)
    print(f"pgbench, one client, one durable INSERT: {tps:.0f} a second\n")
    print("| what | Forge | compared with | ratio | middle half | rounds | target | met |")
    print("|---|---|---|---|---|---|---|---|", flush=True)


def show(rows: Iterator[Compared], other: str) -> None:
    """Print rows as they come."""
    for row in rows:
        print(row.line(other), flush=True)


def against_floor(url: str, rounds: int, owners: int, *, limited: bool) -> Iterator[Compared]:
    """Compare Forge with the floor, each in a database of its own."""
    places = database(url, "forge"), database(url, "floor")
    RawSide.make(places[1])
    forge, floor = ForgeSide(places[0]), RawSide(places[1])
    feed((forge, floor), 1, owners)
    if limited:
        forge.limit()
    yield from one_client((forge, floor), rounds, owners, (at_least(0.85), at_least(0.8)))
    yield from several(places, (forge, floor), rounds, owners)
    for side in (forge, floor):
        side.drain()
    yield dispatches(forge, floor, rounds, at_most(1.2))
    forge.close()
    floor.close()


Sides = tuple[ForgeSide, ForgeSide | RawSide]


def feed(sides: Sides, jobs: int, owners: int) -> None:
    """Give both sides jobs."""
    for side in sides:
        side.feed(jobs, owners)


def one_client(
    sides: Sides, rounds: int, owners: int, targets: tuple[Target, Target], prefix: str = ""
) -> Iterator[Compared]:
    """Compare one client, one at a time and in batches."""
    for what, count, jobs, target in (
        ("one at a time", 1, SINGLES, targets[0]),
        ("batches of 100", 100, BATCHED, targets[1]),
    ):
        feed(sides, (rounds + 1) * jobs + 200, owners)
        one, other = (partial(rate, side.pass_on, jobs, count) for side in sides)
        named = f"{prefix}jobs/s, {what}"
        yield compared(named, one, other, rounds=rounds, target=target)


def several(places: tuple[str, str], sides: Sides, rounds: int, owners: int) -> Iterator[Compared]:
    """Compare four clients, one at a time and in batches."""
    forge, floor = Clients(ForgeSide, places[0], CLIENTS), Clients(RawSide, places[1], CLIENTS)
    for what, count, jobs in (
        ("one at a time", 1, SINGLES),
        ("batches of 100", 100, BATCHED),
    ):
        # A turn may bring more than what is left to pass.
        feed(sides, CLIENTS * ((rounds + 1) * (jobs + count) + 200), owners)
        one, other = (partial(rate, side.pass_on, jobs, count) for side in (forge, floor))
        named = f"jobs/s, four workers, {what}"
        yield compared(named, one, other, rounds=rounds, target=at_least(0.8))
    forge.close()
    floor.close()


def dispatches(
    one: ForgeSide, other: ForgeSide | RawSide, rounds: int, target: Target, prefix: str = ""
) -> Compared:
    """Compare the time from submit to claim."""
    return compared(
        f"{prefix}ms from submit to claim",
        lambda: 1000 * median(one.dispatch(DISPATCHED)),
        lambda: 1000 * median(other.dispatch(DISPATCHED)),
        rounds=rounds,
        target=target,
    )


def real_worker(url: str, rounds: int, owners: int, *, limited: bool) -> Iterator[Compared]:
    """Compare Forge's worker with 64 slots with one client that claims batches of 100."""
    place, other = database(url, "worker"), ForgeSide(database(url, "batches"))
    feeder = ForgeSide(place)
    feed((feeder, other), (rounds + 2) * max(WORKED, BATCHED), owners)
    if limited:
        feeder.limit()
        other.limit()
    feeder.close()
    with TemporaryDirectory(prefix="forge-bench-") as root, worker(place, Path(root)) as pass_on:
        yield compared(
            "jobs/s, the real worker, 64 slots of no-op handlers",
            partial(rate, pass_on, WORKED, 0),
            partial(rate, other.pass_on, BATCHED, 100),
            rounds=rounds,
            target=at_least(0.5),
        )
    other.close()


CONDITIONS: list[tuple[str, Condition, int]] = [
    ("1,000,000 finished jobs", history, 1_000_000),
    ("200,000 ready jobs", backlog, 200_000),
    ("a snapshot held while 100,000 jobs passed", snapshot, 100_000),
]


def under(  # noqa: PLR0917 - one block of the table
    url: str, place: str, name: str, condition: Condition, jobs: int, rounds: int
) -> Iterator[Compared]:
    """Compare Forge under a condition with Forge without, on the same server."""
    with_it, without = ForgeSide(database(url, place)), ForgeSide(database(url, f"{place}_not"))
    with_it.feed(1)
    with condition(with_it, jobs):
        same, prefix = (at_least(0.9), at_least(0.9)), f"{name}: "
        yield from one_client((with_it, without), rounds, 1, same, prefix)
        yield dispatches(with_it, without, rounds, at_most(1.1), prefix)
    with_it.close()
    without.close()


if __name__ == "__main__":
    main()

"""Install the peers, measure all queues in alternating rounds, and print the table."""

import argparse
import platform
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psycopg
from cluster import SETTINGS, cluster, database, pgbench_tps

from benchmarks.peers.contenders import EVERY, FORGE, NODES, PYTHONS, Contender
from benchmarks.peers.driver import Driver, Places, drivers
from benchmarks.peers.nodes import node_environment, node_version
from benchmarks.zombie.environment import CannotInstall, environment, versions

WORKERS, BULK, DISPATCHES = 4, 1_000, 5
# The jobs of a round: enough that starting a worker weighs little.
SINGLES, MANY, FOUR, SUBMITTED = 200, 1_000, 2_000, 200
CONNECTIONS = 300

Row = Callable[[Sequence[Driver]], float]


def main() -> None:
    """Measure everything and print it."""
    names = [one.name for one in EVERY]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="one queue; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, and few jobs")
    asked = parser.parse_args()
    number, part = (1, 5) if asked.quick else (asked.rounds, 1)
    SETTINGS["max_connections"] = str(CONNECTIONS)
    with ExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory(prefix="forge-peers-")))
        places, found = installed(held, asked.only or names)
        url = held.enter_context(cluster())
        head(url)
        queues: dict[Contender, Sequence[Driver]] = {}
        for one in found:
            place = made(url, one)
            queues[one] = held.enter_context(drivers(one, place, places, folder, WORKERS))
            if one is not FORGE:
                queues[one][0].call("prepare")
        words = {one: version(one, places) for one in found}
        print(f"| | {' | '.join(words[one] for one in found)} |")
        print("|" + "---|" * (len(found) + 1), flush=True)
        for what, row in rows(part).items():
            figures = rounds(queues, row, number)
            cells = [f"{median(figures[one]):,.4g}" for one in found]
            print(f"| {what} | {' | '.join(cells)} |", flush=True)


def rounds(
    queues: dict[Contender, Sequence[Driver]], row: Row, number: int
) -> dict[Contender, list[float]]:
    """Measure in turn, each round beginning with another queue; the first only warms up."""
    figures: dict[Contender, list[float]] = defaultdict(list)
    order = list(queues)
    for n in range(number + 1):
        for one in order:
            figure = row(queues[one])
            if n:
                figures[one].append(figure)
        order = order[1:] + order[:1]
    return figures


def passing(mode: str, jobs: int, workers: int = 1) -> Row:
    """Return what measures the jobs per second of workers that drain the queue."""

    def measured(processes: Sequence[Driver]) -> float:
        processes[0].call("enqueue", jobs=jobs, size=BULK)
        for one in processes[:workers]:
            one.ask("drain", mode=mode)
        answers = [one.answer() for one in processes[:workers]]
        done, longest = sum(a[0] for a in answers), max(a[1] for a in answers)
        return float(done / longest)

    return measured


def enqueued(jobs: int, size: int) -> Row:
    """Return what measures the jobs per second of submitting, and drains the queue again."""

    def measured(processes: Sequence[Driver]) -> float:
        seconds: float = processes[0].call("enqueue", jobs=jobs, size=size)
        for one in processes:
            one.ask("drain", mode="best")
        for one in processes:
            one.answer()
        return jobs / seconds

    return measured


def dispatched(processes: Sequence[Driver]) -> float:
    """Return the milliseconds from submit to the start of the job."""
    return float(processes[0].call("dispatch", times=DISPATCHES))


def rows(part: int) -> dict[str, Row]:
    """Return the rows, with this part of the jobs."""
    return {
        "jobs/s, one worker, one at a time": passing("one", SINGLES // part),
        "jobs/s, one worker, 16 at once": passing("sixteen", MANY // part),
        "jobs/s, one worker, best batching": passing("best", MANY // part),
        "jobs/s, four workers, best batching": passing("best", FOUR // part, WORKERS),
        "jobs/s submitted, one by one": enqueued(SUBMITTED // part, 1),
        "jobs/s submitted by 1,000, all different": enqueued(2 * BULK, BULK),
        "ms from submit to an idle worker, p50": dispatched,
    }


def installed(held: ExitStack, wanted: list[str]) -> tuple[Places, list[Contender]]:
    """Install what is wanted; say why where it cannot be, and leave it out. Forge comes first."""
    python = node = None
    found = [FORGE]
    if nodes := [one for one in NODES if one.name in wanted]:
        try:
            node = held.enter_context(node_environment())
            found += nodes
        except CannotInstall as why:
            print(f"the queues from npm could not be installed, and are left out: {why}\n")
    if pythons := [one for one in PYTHONS if one.name in wanted]:
        try:
            python = held.enter_context(environment())
            found += pythons
        except CannotInstall as why:
            print(f"the queues from PyPI could not be installed, and are left out: {why}\n")
    return Places(python, node), found


def made(url: str, contender: Contender) -> str:
    """Make a database for a queue; Forge's is migrated."""
    name = contender.module
    if contender is FORGE:
        return database(url, name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.replace("/postgres?", f"/{name}?")


def version(contender: Contender, places: Places) -> str:
    """Return a queue's name and version."""
    if contender.package is None:
        return "Forge, this tree"
    if contender.node:
        assert places.node is not None
        return f"{contender.name} {node_version(places.node, contender.package)}"
    assert places.python is not None
    return versions(places.python, (contender.package,))


def head(url: str) -> None:
    """Print what all figures depend on."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SHOW server_version").fetchone()
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    print(
        f"Postgres {found[0] if found else '?'}, Python {platform.python_version()},"
        f" Node {node.stdout.strip()}; one durable INSERT from pgbench with one client:"
        f" {pgbench_tps(url, 5):.0f} a second\n"
    )


if __name__ == "__main__":
    main()

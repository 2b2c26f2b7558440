"""The CPU time of this tree's queue beside that of another checkout or of the floor, in turn."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psycopg
from cluster import cluster
from psycopg import sql

HERE = Path(__file__).resolve().parent
PACKAGES = ("schema", "worker", "lambda", "client")
MIGRATE = "import sys; from forge_schema.database import migrate; migrate.upgrade(sys.argv[1])"


@dataclass(frozen=True)
class Row:
    """A verb that is measured, the jobs of one round, and what it has to be fed with."""

    what: str
    verb: str
    jobs: int
    size: int
    owners: int = 0


ROWS = (
    Row("submit 1,000 different jobs at once", "submit", 1_000, 1_000),
    Row("submit one by one", "submit", 50, 1),
    Row("end and claim one, 1 owner", "pass_on", 50, 1, 1),
    Row("end and claim 100, 1 owner", "pass_on", 500, 100, 1),
    Row("end and claim one, 1,000 owners", "pass_on", 50, 1, 1_000),
    Row("end and claim 100, 1,000 owners", "pass_on", 500, 100, 1_000),
    # The last one: its worker claims whatever is ready from then on.
    Row("the real worker, 64 slots of no-op jobs, 1 owner", "work", 1_280, 64, 1),
)


class Side:
    """A process with the packages of one checkout."""

    def __init__(self, tree: Path, url: str, name: str, *also: str) -> None:
        paths = [*(str(tree / package) for package in PACKAGES), str(HERE)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        place = url.replace("/postgres?", f"/{name}?")
        subprocess.run([sys.executable, "-c", MIGRATE, place], env=environment, check=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cpu_side", place, *also],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, *asked: object) -> tuple[int, int]:
        """Ask for a verb, and return what it cost."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        python, backend = json.loads(self._process.stdout.readline())
        return python, backend

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def beside(tree: Path | None, rounds: int, wanted: str = "") -> Iterator[str]:
    """Measure this tree and another checkout, or the floor, in turn; yield the lines of a table."""
    other, own = ("before", "now") if tree else ("floor", "Forge")
    kinds = [f"{kind} {other} | {own} | ratio" for kind in ("Python", "backend")]
    yield f"| CPU µs a job, and bytes of WAL | {' | '.join(kinds)} | WAL {other} | {own} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    with cluster() as url, ExitStack() as held:
        here = HERE.parents[1]
        also = () if tree else ("floor",)
        sides = [Side(tree or here, url, "before", *also), Side(here, url, "now")]
        for side in sides:
            held.callback(side.end)
        asking = held.enter_context(psycopg.connect(url, autocommit=True))
        for row in ROWS:
            if wanted in row.what and (tree or row.verb != "work"):
                yield _line(row, sides, rounds, asking)


def _line(row: Row, sides: list[Side], rounds: int, asking: psycopg.Connection) -> str:
    for side in sides:
        if row.owners:
            side.call("drain")
            side.call("feed", (rounds + 1) * (row.jobs + row.size) + 200, row.owners)
    costs: list[list[tuple[int, int, int]]] = [[], []]
    for n in range(rounds + 1):
        for number in (0, 1) if n % 2 else (1, 0):
            before = _wal(asking)
            cost = sides[number].call(row.verb, row.jobs, row.size)
            if n:
                costs[number].append((*cost, _wal(asking) - before))
    cells = []
    for kind in (0, 1):
        one, other = (median(cost[kind] for cost in of_side) for of_side in costs)
        ratio = median(b[kind] / a[kind] for a, b in zip(*costs, strict=True))
        cells += [f"{one / row.jobs / 1000:.1f}", f"{other / row.jobs / 1000:.1f}", f"{ratio:.2f}"]
    cells += [f"{median(cost[2] for cost in of_side) / row.jobs:.0f}" for of_side in costs]
    return f"| {row.what} | {' | '.join(cells)} |"


def _wal(asking: psycopg.Connection) -> int:
    row = asking.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])

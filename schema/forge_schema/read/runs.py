"""Read runs: the jobs that a filter finds or a sweep has, with parameters, metrics and results."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from forge_schema.database.pool import Database, Row
from forge_schema.job_filter import Filter
from forge_schema.model.errors import ForgeError
from forge_schema.model.results import (
    MOST_RUNS,
    Experiment,
    GroupedBy,
    Run,
    RunGroup,
    RunGroups,
    Runs,
    column_unknown,
    drawn_metric,
    in_order,
    keys_of,
    missing_columns,
)
from forge_schema.model.stored import PAGE
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.read.jobs import Jobs

# Points of the outline of a curve, of each attempt.
POINTS = 24
# How many experiments are looked at, and how many of them are listed.
LOOK, SHOWN = 5_000, 100


@dataclass(frozen=True)
class Sorted:
    """How to sort runs: by a column, the newest first without one; and which metric is outlined.

    Those sorted are the newest jobs `before` an id, up to `MOST_RUNS`; the first `count` of them
    are returned. Outlined is the first metric in `curve` that they have, as `drawn_metric` says.
    """

    sort: str | None = None
    descending: bool = False
    curve: tuple[str, ...] = ()
    count: int = PAGE
    before: int | None = None


ANYHOW = Sorted()


def runs(
    database: Database, wanted: Filter, *, scope: list[str] | None = None, how: Sorted = ANYHOW
) -> Runs:
    """Return the jobs that match a filter as runs.

    Raises:
        ColumnUnknown: none of them has the column to sort by.
    """
    most = how.count if how.sort is None else MOST_RUNS
    # One more tells whether there are others.
    ids = Jobs(database).ids(wanted, scope=scope, before=how.before, count=most + 1)
    newest = ids[:most]
    items = _first(database, newest, how)
    key = drawn_metric(items, how.curve)
    drawn = items if key is None else _outlined(database, items, key)
    return Runs(items=drawn, found=len(newest), more=len(ids) > most)


def groups(
    database: Database, wanted: Filter, by: GroupedBy, *, scope: list[str] | None = None
) -> RunGroups:
    """Return the groups of the newest jobs that match a filter, that of the newest job first."""
    ids = Jobs(database).ids(wanted, scope=scope, count=MOST_RUNS + 1)
    newest = ids[:MOST_RUNS]
    rows = database.rows("run_groups", again=True, job_ids=newest, by=by)
    items = [RunGroup.model_validate(row) for row in rows]
    return RunGroups(items=items, found=len(newest), more=len(ids) > MOST_RUNS)


def _first(database: Database, ids: list[int], how: Sorted) -> list[Run]:
    """Return the first runs in an order; a page of them at a time, since each may be large."""
    first: list[Run] = []
    keys: list[str] = []
    is_known = not ids or how.sort is None
    for at in range(0, len(ids), PAGE):
        some = _read(database, ids[at : at + PAGE])
        first += some
        if how.sort is not None:
            is_known = is_known or not missing_columns(some, [how.sort])
            keys += keys_of(some)
            first = in_order(first, how.sort, descending=how.descending)[: how.count]
    if not is_known:
        raise column_unknown(how.sort or "", keys)
    return first


def _read(database: Database, ids: list[int]) -> list[Run]:
    rows: dict[int, list[Row]] = {}
    for row in database.rows("runs", again=True, job_ids=ids):
        rows.setdefault(row["job_id"], []).append(row)
    # A job may have been removed since.
    return [Run.model_validate(row) for job_id in ids for row in rows.get(job_id, ())]


def experiments(database: Database, scope: list[str] | None) -> list[Experiment]:
    """Return the newest experiments of some owners, or of all."""
    rows = database.rows("experiments", again=True, scope=scope, look=LOOK, count=SHOWN)
    return [Experiment.model_validate(row) for row in rows]


def _outlined(database: Database, newest: list[Run], key: str) -> list[Run]:
    ids = [run.job_id for run in newest]
    rows = database.rows("run_curves", again=True, job_ids=ids, key=key, points=POINTS)
    curves = {row["job_id"]: _outline(row) for row in rows}
    return [run.model_copy(update={"curve": curves.get(run.job_id)}) for run in newest]


def _outline(row: Row) -> list[float]:
    """Return values with those that a later attempt replaced left out, at most `POINTS`."""
    kept: list[tuple[float | None, float]] = []
    for step, value in zip(row["steps"], row["values"], strict=True):
        while step is not None and kept and kept[-1][0] is not None and kept[-1][0] >= step:
            kept.pop()
        if value is not None:
            kept.append((step, value))
    values = [value for _, value in kept]
    if len(values) <= POINTS:
        return values
    edges = [n * len(values) // POINTS for n in range(POINTS + 1)]
    return [values[last - 1] for _, last in pairwise(edges)]


class SweepUnknown(ForgeError):
    """The owner has no job in this sweep."""


class SweepUncapped(ForgeError):
    """No job of the sweep waits for turns."""


class Benchmarks:
    """An owner's sweeps."""

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def states(self, sweep: str) -> dict[str, int]:
        """Return the number of a sweep's jobs in each state; `SweepUnknown` if it has no jobs."""
        rows = self._database.rows("sweep_states", again=True, owner=self._owner, sweep=sweep)
        if not rows:
            raise self._unknown(sweep)
        return {row["state"]: row["jobs"] for row in rows}

    def points(self, sweep: str, *, after: int = 0, count: int = PAGE) -> list[Row]:
        """Return a sweep's jobs after an id, with parameters and results.

        Raises:
            SweepUnknown: it has no jobs.
        """
        rows = self._database.rows(
            "sweep_points",
            again=True,
            owner=self._owner,
            sweep=sweep,
            after=after,
            count=min(count, PAGE),
        )
        if not rows and not after:
            raise self._unknown(sweep)
        return rows

    def cancel(self, sweep: str) -> dict[str, int]:
        """Cancel a sweep's unfinished jobs; return how many were cancelled, and how many still run.

        Raises:
            SweepUnknown: it has no jobs.
        """
        self.states(sweep)
        ids = self._database.rows("sweep_unfinished", again=True, owner=self._owner, sweep=sweep)
        acts = JobActs(self._database, owner=self._owner, actor=self._actor)
        rows = acts.cancel_each([row["id"] for row in ids])
        became = Counter(row["became"] for row in rows.values())
        return {name: became[name] for name in ("cancelled", "running")}

    def set_parallel(self, sweep: str, parallel: int) -> dict[str, int]:
        """Let at most so many of a sweep's jobs have a turn at once; return its `states`.

        Jobs that have a turn keep it. A repeat changes nothing.

        Raises:
            SweepUnknown: it has no jobs.
            SweepUncapped: no job was submitted with a cap, so none waits for a turn.
        """
        rows = self._database.rows(
            "set_parallel",
            again=True,
            owner=self._owner,
            sweep=sweep,
            parallel=parallel,
            actor=self._actor,
        )
        states = self.states(sweep)
        if not rows:
            raise SweepUncapped(
                f"the jobs of the sweep {sweep!r} have no cap, so none of them waits",
                hint="submit a sweep with --parallel to cap it",
            )
        return states

    def _unknown(self, sweep: str) -> SweepUnknown:
        return SweepUnknown(
            f"{self._owner} has no sweep {sweep!r}", hint="`forge sweep list` lists the sweeps"
        )

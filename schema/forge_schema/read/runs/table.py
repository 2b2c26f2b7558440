"""Read runs: the jobs that a filter finds, as rows with parameters, metrics and results."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from forge_schema.database.pool import Database, Row
from forge_schema.job_filter import Filter
from forge_schema.model.fields import Word
from forge_schema.model.results import Experiment, Run, drawn_metric, in_order
from forge_schema.read.jobs import PAGE, Jobs

# Points of the outline of a curve, of each attempt.
POINTS = 24
# How many experiments are looked at, and how many of them are listed.
LOOK, SHOWN = 5_000, 100


@dataclass(frozen=True)
class Sorted:
    """How to sort runs: by a column, the newest first without one; and which metric is outlined.

    Those sorted are the newest jobs, up to a thousand; then `count` of them are returned. Outlined
    is the first metric in `curve` that they have, as `drawn_metric` says.
    """

    sort: Word | None = None
    descending: bool = False
    curve: tuple[Word, ...] = ()
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


ANYHOW = Sorted()


def runs(
    database: Database, wanted: Filter, *, owner: str | None = None, how: Sorted = ANYHOW
) -> list[Run]:
    """Return the jobs that match a filter as runs."""
    most = how.count if how.sort is None else PAGE
    ids = Jobs(database).ids(wanted, owner=owner, count=most)
    rows = {row["job_id"]: row for row in database.rows("runs", again=True, job_ids=ids)}
    # A job may have been removed since.
    found = [Run.model_validate(rows[job_id]) for job_id in ids if job_id in rows]
    if how.sort is not None:
        found = in_order(found, how.sort, descending=how.descending)[: how.count]
    key = drawn_metric(found, how.curve)
    return found if key is None else _outlined(database, found, key)


def experiments(database: Database, owner: str | None) -> list[Experiment]:
    """Return the newest experiments of an owner, or of all."""
    rows = database.rows("experiments", again=True, owner=owner, look=LOOK, count=SHOWN)
    return [Experiment.model_validate(row) for row in rows]


def _outlined(database: Database, found: list[Run], key: str) -> list[Run]:
    ids = [run.job_id for run in found]
    rows = database.rows("run_curves", again=True, job_ids=ids, key=key, points=POINTS)
    curves = {row["job_id"]: _outline(row) for row in rows}
    return [run.model_copy(update={"curve": curves.get(run.job_id)}) for run in found]


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

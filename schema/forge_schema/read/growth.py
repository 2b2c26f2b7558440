"""How fast the queue's tables and objects grow, to predict when a disk is full."""

from dataclasses import dataclass
from datetime import timedelta

from forge_schema.database.pool import Database
from forge_schema.database.statements import statement

DAYS = 14
# A burst on the first day says nothing about the next ones.
LEAST_DAYS = 1.0


@dataclass(frozen=True, slots=True)
class Growth:
    """The size of the tables, and what each day adds to them and to the store, in bytes.

    The two are None for a queue that is too young to tell. `folder` is the server's data directory,
    None if this role may not know it.
    """

    bytes: int
    tables_per_day: float | None
    objects_per_day: float | None
    folder: str | None


def growth(database: Database) -> Growth:
    """Return how the queue has grown in the last two weeks.

    A day adds its jobs, less those that retention removed, times what a job takes on average.

    Raises:
        ReportTooSlow: there are too many jobs to look at.
    """
    with database.reporting() as connection:
        (clock,) = connection.execute(statement("clock")).fetchall()
        # As constants, by which the planner finds the months and an index.
        params = {"now": clock["now"], "since": clock["now"] - timedelta(days=DAYS)}
        (row,) = connection.execute(statement("growth"), params).fetchall()
    size, days, submitted = row["bytes"], row["days"], row["submitted"]
    if days < LEAST_DAYS:
        return Growth(size, None, None, row["folder"])
    more = max(submitted - row["removed"], 0)
    tables = more * size / max(row["jobs"], 1) / days
    objects = row["stored"] * more / submitted / days
    return Growth(size, tables, objects, row["folder"])

"""Bounded queries for a monitoring system, and the growth of the queue's tables and objects."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from forge_schema.database.pool import Database, Row, run
from forge_schema.database.statements import statement

# Maximum count of each lane's ready jobs, of scheduled jobs, of held jobs, and of leases.
MOST = 10_000
# Longer than every statement timeout: by then, all ends of this age are committed.
COMMITTED_AFTER = timedelta(seconds=60)

DAYS = 14
# A burst on the first day says nothing about the next ones.
LEAST_DAYS = 1.0


@dataclass(slots=True)
class Tally:
    """The number of ended attempts, and their GPU time in seconds."""

    attempts: int = 0
    gpu_seconds: float = 0.0


class QueueCounts:
    """`ended` is what `count_ended` has counted, by queue and reason. It never decreases.

    Args:
        database: the queue's database.
        ttl: the TTL of its leases.
    """

    def __init__(self, database: Database, ttl: timedelta) -> None:
        self._database = database
        self._ttl = ttl
        self._counted_to: datetime | None = None
        self.ended: dict[tuple[str, str], Tally] = defaultdict(Tally)

    def lanes(self) -> list[Row]:
        """Return lanes: owner, queue, shape and jobs by state; `oldest_s` is the longest wait."""
        return self._database.rows("gauge_lanes", again=True, most=MOST)

    def fleet(self) -> list[Row]:
        """Return the number of workers and GPUs by worker status."""
        return self._database.rows("gauge_fleet", again=True)

    def now(self) -> Row:
        """Return the number of leases and the time of the last sweeper's tick."""
        (row,) = self._database.rows("gauge_now", again=True, most=MOST, near=self._ttl / 4)
        return row

    def count_ended(self) -> None:
        """Add the attempts that ended since the last call, but no more than a day of them.

        The history is append-only, and attempts younger than a minute are left for the next call,
        so each is counted once without a stored counter. The first call sets the start.
        """
        with self._database.reporting() as connection:
            bounds = {"since": self._counted_to, "committed_after": COMMITTED_AFTER}
            rows = run(connection, "gauge_ended", bounds)
        for row in rows:
            if row["queue"] is not None:
                tally = self.ended[row["queue"], row["reason"]]
                tally.attempts += row["attempts"]
                tally.gpu_seconds += row["gpu_seconds"]
        self._counted_to = rows[0]["until"]


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

"""Bounded queries for a monitoring system that runs them every few seconds."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from forge_schema.database.pool import Database, Row, run

# Maximum count of each lane's ready jobs, of scheduled jobs, of held jobs, and of leases.
MOST = 10_000
# Longer than every statement timeout: by then, all ends of this age are committed.
COMMITTED_AFTER = timedelta(seconds=60)


@dataclass(slots=True)
class Tally:
    """The number of ended attempts, and their GPU time in seconds."""

    attempts: int = 0
    gpu_seconds: float = 0.0


class Gauges:
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

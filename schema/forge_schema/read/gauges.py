"""What is asked of a queue every few seconds, for a monitoring system: bounded, by indexes."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from forge_schema.database.pool import Database, Row, run

# Of each lane's ready jobs, of all scheduled ones and of all leases, so many are counted at most.
MOST = 10_000
# Past every time-out of a statement: by then, who wrote an end has committed it.
SETTLED = timedelta(seconds=60)


@dataclass(slots=True)
class Tally:
    """How many attempts ended, and the GPU time of theirs, in seconds."""

    attempts: int = 0
    gpu_seconds: float = 0.0


class Gauges:
    """`ended` has by queue and reason what `count_ended` counted; it never falls.

    Args:
        database: the queue's.
        ttl: how long its leases last.
    """

    def __init__(self, database: Database, ttl: timedelta) -> None:
        self._database = database
        self._ttl = ttl
        self._counted_to: datetime | None = None
        self.ended: dict[tuple[str, str], Tally] = defaultdict(Tally)

    def lanes(self) -> list[Row]:
        """Return each lane's queue, shape, and jobs by state; `oldest_s` is how long one waits."""
        return self._database.rows("gauge_lanes", again=True, most=MOST)

    def fleet(self) -> list[Row]:
        """Return how many workers and GPUs there are, by the workers' status."""
        return self._database.rows("gauge_fleet", again=True)

    def now(self) -> Row:
        """Return how the leases are and when a sweeper was last here."""
        (row,) = self._database.rows("gauge_now", again=True, most=MOST, near=self._ttl / 4)
        return row

    def count_ended(self) -> None:
        """Add the attempts that ended since the last time, of a day at most.

        The history is append-only, and what is younger than a minute is left for the next time: so
        each attempt is counted once, though nobody keeps a counter. The first time sets the start.
        """
        with self._database.reporting() as connection:
            bounds = {"since": self._counted_to, "settled": SETTLED}
            rows = run(connection, "gauge_ended", bounds)
        for row in rows:
            if row["queue"] is not None:
                tally = self.ended[row["queue"], row["reason"]]
                tally.attempts += row["attempts"]
                tally.gpu_seconds += row["gpu_seconds"]
        self._counted_to = rows[0]["until"]

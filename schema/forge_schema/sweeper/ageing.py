"""Thin out metrics and samples as they age."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from forge_schema.database.pool import Database

MINUTE, TEN_MINUTES = timedelta(minutes=1), timedelta(minutes=10)
STATEMENTS = ("thin:metric", "thin:sample")
# Maximum number of rows one statement deletes, and seconds within which a tick begins new ones,
# so that a backlog does not delay other steps.
ROWS = 10_000
ENOUGH_S = 2.0


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages at which metric lines and samples are thinned out; 0 means never.

    Past the age `minute`, one row per minute stays; past `ten_minutes`, one per ten minutes, by the
    time it was stored. The first and the last row of each attempt and rank stay too.
    """

    minute: timedelta = timedelta(days=1)
    ten_minutes: timedelta = timedelta(days=8)


class Ageing:
    """Thins out old rows. Idempotent, and safe beside other sweepers: only one works.

    It touches only rows that are no longer written.
    """

    def __init__(
        self, database: Database, ages: Ages | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._database = database
        self._ages = ages or Ages()
        self._clock = clock

    def thin(self) -> int:
        """Thin out for a limited time and return the number of deleted rows."""
        until = self._clock() + ENOUGH_S
        widths = ((MINUTE, self._ages.minute), (TEN_MINUTES, self._ages.ten_minutes))
        return sum(
            self._thin(name, width, age, until)
            for width, age in widths
            if age
            for name in STATEMENTS
        )

    def _thin(self, name: str, width: timedelta, age: timedelta, until: float) -> int:
        gone = 0
        while self._clock() < until:
            row = self._database.one(
                name, again=True, width_s=int(width.total_seconds()), age=age, count=ROWS
            )
            if row is None:
                break
            gone += row["gone"]
        return gone

"""Series of an attempt for charts: its metrics and resource samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from forge_schema.database.pool import Database, Row
from forge_schema.model.fields import SMALLINT, Word

POINTS = 500
MOST_POINTS = 2000
# Maximum number of curves of each source.
MOST_KEYS = 64
# Maximum that one call reads of each source: lines, and bytes of JSON.
LINES = 20_000
BYTES = 8 << 20
# A row may be written shortly after the clock was read for the attempt's bounds.
SLACK = timedelta(hours=1)


@dataclass(frozen=True)
class Wanted:
    """Which series: by default all keys of rank 0 of the newest attempt that has any.

    `points` is the maximum number of points of each.
    """

    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    keys: Annotated[Sequence[Word], Field(max_length=MOST_KEYS)] | None = None
    points: Annotated[int, Field(ge=1, le=MOST_POINTS)] = POINTS


class Series:
    """Reads a bounded number of rows by primary key.

    Values are split into runs of equal length in the order written. Each run is a point with `min`,
    `avg`, `max` and `last`, and the time `t` (Unix seconds) and `step` of its last value. A key
    with no more values than points has one point per value.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, job_id: int, wanted: Wanted | None = None) -> Row:
        """Return `attempt`, `rank`, `since`, `until`, `running`, `left_off` and the `items`.

        Each item is one curve: `source` (metric or sample), `key`, `gpu` (a UUID, or None), `count`
        (of the values read), and the lists `t`, `min`, `avg`, `max`, `last`, and for a metric
        `step`, all of equal length. `left_off` counts the curves beyond the limit. Without an
        attempt, there are no items.
        """
        wanted = wanted or Wanted()
        found = self._database.one(
            "series_attempt", again=True, job_id=job_id, attempt=wanted.attempt, rank=wanted.rank
        )
        if found is None:
            return _none(wanted)
        bounds = {
            "job_id": job_id,
            "token": found.pop("token"),
            "rank": wanted.rank,
            "since": found["since"] - SLACK,
            "until": found["until"] + SLACK,
            "lines": LINES,
            "points": min(max(wanted.points, 1), MOST_POINTS),
            "keys": list(wanted.keys) if wanted.keys else None,
            "most_keys": MOST_KEYS,
        }
        metrics = self._database.rows("series_metrics", again=True, bytes=BYTES, **bounds)
        samples = self._database.rows("series_samples", again=True, **bounds)
        left_off = sum(rows[0]["left_off"] for rows in (metrics, samples) if rows)
        items = [*_curves("metric", metrics), *_curves("sample", samples)]
        return {**found, "left_off": left_off, "items": items}


def _curves(source: str, rows: list[Row]) -> list[dict[str, Any]]:
    for row in rows:
        del row["left_off"]
    return [{"source": source, **row} for row in rows]


def _none(wanted: Wanted) -> Row:
    return {
        "attempt": wanted.attempt,
        "rank": wanted.rank,
        "since": None,
        "until": None,
        "running": False,
        "left_off": 0,
        "items": [],
    }

"""Series for charts: a job's metrics and samples; and what all waited, ran and was there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any, Literal, NamedTuple

from forge_schema.database.pool import Database, DatabaseUser, Row, run
from forge_schema.model.stored import MOST_KEYS, MOST_POINTS, POINTS

# Maximum number of attempts that a curve goes over: the newest.
MOST_ATTEMPTS = 200
# Maximum that one call reads of each source: lines, and bytes of JSON.
LINES = 20_000
BYTES = 8 << 20
# A row may be written shortly after the clock was read for the attempt's bounds.
SLACK = timedelta(hours=1)


@dataclass(frozen=True)
class WantedSeries:
    """Which series: by default all keys of rank 0, its metrics joined over all attempts.

    `points` is the maximum number of points of each. With `since` and `until`, only the part of
    them between two values of `x`: a step, or a time in Unix seconds. Samples have no steps, so a
    range of steps leaves them whole. `contains` is a part of a key, in capitals or not.
    """

    attempt: int | None = None
    rank: int = 0
    keys: Sequence[str] | None = None
    points: int = POINTS
    x: Literal["step", "time"] = "step"
    since: float | None = None
    until: float | None = None
    contains: str | None = None


class SeriesReader(DatabaseUser):
    """Reads a bounded number of rows by primary key.

    Values are split into runs of equal length in the order written. Each run is a point with `min`,
    `avg`, `max` and `last`, and the time `t` (Unix seconds) and `step` of its last value. They are
    None if a metric has no finite number there. A key with no more values than points has one point
    per value.
    """

    def of(self, job_id: int, wanted: WantedSeries | None = None) -> Row:
        """Return `attempt`, `rank`, `since`, `until`, `running`, `left_off`, the `items` and more.

        Each item is one curve: `source` (metric or sample), `key`, `gpu` (a UUID, or None), `count`
        (of the finite values read), and the lists `t`, `min`, `avg`, `max`, `last`, and for a
        metric `step`, all of equal length. `newest` is the last value of a metric as it was
        written: a number, or `NaN`, `Infinity` or `-Infinity`. `began` is when the first attempt
        did. `left_off` counts the curves beyond the limit. Without an attempt, there are no items.

        Samples are those of the newest attempt that has any values, or of the wanted one. A curve
        of a metric goes on from attempt to attempt: where one resumed at an earlier step than the
        last had reached, the values of the last from there on are in `superseded`, a curve for each
        `attempt`. `joins` are the attempts after the first, each with the `step` and the time `t`
        at which it began.
        """
        wanted = wanted or WantedSeries()
        runs = self._database.rows(
            "series_attempts",
            again=True,
            job_id=job_id,
            attempt=wanted.attempt,
            rank=wanted.rank,
            count=MOST_ATTEMPTS,
        )
        if not runs:
            return _none(wanted)
        most = {
            "job_id": job_id,
            "rank": wanted.rank,
            "lines": LINES,
            "points": min(max(wanted.points, 1), MOST_POINTS),
            "keys": list(wanted.keys) if wanted.keys else None,
            "contains": wanted.contains or None,
            "most_keys": MOST_KEYS,
        }
        metrics = self._metrics(runs, wanted, most)
        samples = self._samples(runs[-1], wanted, most)
        left_off = sum(rows[0]["left_off"] for rows in (metrics, samples) if rows)
        attempts = {run["token"]: run["attempt"] for run in runs}
        old, current = _apart(metrics, attempts)
        shown = {key: runs[-1][key] for key in ("attempt", "since", "until", "running")}
        return {
            **shown,
            "began": runs[0]["since"],
            "rank": wanted.rank,
            "left_off": left_off,
            "items": [*_curves("metric", current), *_curves("sample", samples)],
            "superseded": _curves("metric", old),
            "joins": [_join(run) for run in runs[1:]],
        }

    def _metrics(self, runs: list[Row], wanted: WantedSeries, most: Row) -> list[Row]:
        bounds = {
            "tokens": [run["token"] for run in runs],
            "since": [run["since"] - SLACK for run in runs],
            "until": [run["until"] + SLACK for run in runs],
            "below": [run["below"] for run in runs],
            "by_step": wanted.x == "step",
            "since_x": -inf if wanted.since is None and wanted.until is not None else wanted.since,
            "until_x": wanted.until,
        }
        return self._database.rows("series_metrics", again=True, bytes=BYTES, **bounds, **most)

    def _samples(self, run: Row, wanted: WantedSeries, most: Row) -> list[Row]:
        since, until = run["since"] - SLACK, run["until"] + SLACK
        if wanted.x == "time":
            since, until = _within(since, until, wanted)
        bounds = {"since": since, "until": until}
        return self._database.rows(
            "series_samples", again=True, token=run["token"], **bounds, **most
        )


def _within(since: datetime, until: datetime, wanted: WantedSeries) -> tuple[datetime, datetime]:
    """Return the part of a time that is wanted; empty if none of it is."""
    first, last = since.timestamp(), until.timestamp()
    first = max(first, first if wanted.since is None else wanted.since)
    last = min(last, last if wanted.until is None else wanted.until)
    if first > last:
        return until, since
    return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)


def _apart(rows: list[Row], attempts: dict[int, int]) -> tuple[list[Row], list[Row]]:
    """Return the superseded curves, each with its attempt, and the others."""
    old = [
        {**row, "attempt": attempts[row["replaced"]], "newest": None}
        for row in rows
        if row["replaced"]
    ]
    return old, [row for row in rows if not row["replaced"]]


def _join(run: Row) -> Row:
    return {"attempt": run["attempt"], "step": run["first_step"], "t": run["since"].timestamp()}


def _curves(source: str, rows: list[Row]) -> list[dict[str, Any]]:
    unsaid = {"left_off", "replaced"}
    given = {"source": source, "newest": None, "attempt": None}
    return [
        {**given, **{key: value for key, value in row.items() if key not in unsaid}} for row in rows
    ]


def _none(wanted: WantedSeries) -> Row:
    return {
        "attempt": wanted.attempt,
        "began": None,
        "rank": wanted.rank,
        "since": None,
        "until": None,
        "running": False,
        "left_off": 0,
        "items": [],
        "superseded": [],
        "joins": [],
    }


class Span(StrEnum):
    """How far back from now."""

    HOURS = "6h"
    DAY = "24h"
    WEEK = "7d"
    WEEKS = "4w"


class Steps(NamedTuple):
    """A span of time as a number of equal steps."""

    step: timedelta
    number: int


SPANS: Mapping[Span, Steps] = {
    Span.HOURS: Steps(timedelta(minutes=5), 72),
    Span.DAY: Steps(timedelta(minutes=20), 72),
    Span.WEEK: Steps(timedelta(hours=2), 84),
    Span.WEEKS: Steps(timedelta(hours=12), 56),
}
MINUTE = timedelta(minutes=1)


def use_over_time(
    database: Database,
    span: Span,
    *,
    now: datetime,
    scope: list[str] | None = None,
    queue: str | None = None,
    worker_id: int | None = None,
) -> list[Row]:
    """Return the steps of one of `SPANS` that ends with this minute, the oldest first.

    Args:
        database: the queue's.
        span: which.
        now: the time of the database.
        scope: the owners whose jobs are counted; None counts all.
        queue: a queue to which the jobs belong.
        worker_id: a worker that ran them; what waited is then not known.

    Returns:
        rows with the time `at` which a step begins, the first that has anything with that, and
        `until` which it ends, the last now; how many jobs were `waiting` and `running` and
        how many GPUs they had, `gpus_held`, on average; how many `workers` with how many `gpus`
        were there; how many jobs began, `begun`, and how long these had waited, `mean_s` and
        `longest_s`.
    """
    step, number = SPANS[span]
    until = now.replace(second=0, microsecond=0) + MINUTE
    wanted = {"scope": scope, "queue": queue, "worker_id": worker_id, "now": now}
    with database.reporting() as connection:
        return run(
            connection, "use_over_time", {**wanted, "until": until, "step": step, "count": number}
        )

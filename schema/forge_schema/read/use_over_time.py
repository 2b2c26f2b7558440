"""What waited, ran and was there over the last hours, days or weeks."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from forge_schema.database.pool import Database, Row, run


class Steps(NamedTuple):
    """A span of time as a number of equal steps."""

    step: timedelta
    number: int


SPANS: Mapping[str, Steps] = {
    "6h": Steps(timedelta(minutes=5), 72),
    "24h": Steps(timedelta(minutes=20), 72),
    "7d": Steps(timedelta(hours=2), 84),
    "4w": Steps(timedelta(hours=12), 56),
}
MINUTE = timedelta(minutes=1)


def use_over_time(
    database: Database,
    span: str,
    *,
    now: datetime,
    scope: list[str] | None = None,
    queue: str | None = None,
    worker_id: int | None = None,
) -> list[Row]:
    """Return the steps of one of `SPANS` that ends with this minute, the oldest first.

    Args:
        database: the queue's.
        span: its name.
        now: the time of the database.
        scope: the owners whose jobs are counted; None counts all.
        queue: a queue to which the jobs belong.
        worker_id: a worker that ran them; what waited is then not known.

    Returns:
        rows with the time `at` which a step begins; how many jobs were `waiting` and `running` and
        how many GPUs they had, `gpus_held`, on average; how many `workers` with how many `gpus`
        were there; how many jobs began, `begun`, and how long these had waited, `mean_s` and
        `longest_s`.
    """
    step, number = SPANS[span]
    until = now.replace(second=0, microsecond=0) + MINUTE
    wanted = {"scope": scope, "queue": queue, "worker_id": worker_id}
    with database.reporting() as connection:
        return run(
            connection, "use_over_time", {**wanted, "until": until, "step": step, "count": number}
        )

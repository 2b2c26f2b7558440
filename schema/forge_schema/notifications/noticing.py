"""Notice events, and write the messages that are to be sent about them."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from itertools import groupby

import structlog
from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row, run
from forge_schema.job_filter import parse
from forge_schema.model.errors import ForgeError
from forge_schema.model.notifications import OF_WORKERS
from forge_schema.notifications.messages import Facts, job_message, worker_message
from forge_schema.read.job_pages import among

# Longer than a statement takes: a row is seen only once it is committed.
LATE = timedelta(seconds=60)
# After so long without a sweeper, nobody wants to hear of what happened before.
LONGEST = timedelta(days=1)
BATCH = 500
KEEP = timedelta(days=30)

log = structlog.get_logger(__name__)


class Noticing:
    """Makes deliveries of events. Each step is idempotent, and safe beside other sweepers."""

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    def withhold(self) -> int:
        """Pause notifications whose makers may not see the jobs any more; resume others."""
        changed = self._database.rows("withhold_notifications", again=True, actor=self._actor)
        for row in changed:
            log.warning("notification_paused" if row["withheld"] else "notification_resumed", **row)
        return len(changed)

    def notice(self) -> int:
        """Make a delivery of each new event and each notification that may tell of it."""
        span = self._database.one("noticed", again=True, late=LATE, longest=LONGEST)
        if span is None:
            return 0
        with self._database.reporting() as connection:
            made: int = run(connection, "notice", span)[0]["made"]
        return made

    def judge(self) -> int:
        """Write the messages of a batch of new deliveries; skip those their query leaves out."""
        rows = self._database.rows("new_deliveries", again=True, count=BATCH)
        judged: list[dict[str, object]] = []
        for _, own in groupby(rows, key=lambda row: row["notification_id"]):
            judged += _judged(self._database, list(own))
        if judged:
            self._database.rows("judge_deliveries", again=True, judged=Jsonb(judged))
        return len(judged)

    def forget(self) -> int:
        """Delete a batch of old deliveries."""
        keep = {"keep": KEEP, "late": LONGEST, "count": BATCH}
        return len(self._database.rows("forget_deliveries", again=True, **keep))


def _judged(database: Database, rows: list[Row]) -> list[dict[str, object]]:
    """Return the ids and messages of deliveries of one notification; None skips one."""
    jobs = _chosen(database, rows)
    written = partial(_written, jobs)
    return [{"id": str(row["id"]), "message": written(row)} for row in rows]


def _written(jobs: dict[int, Row], row: Row) -> Facts | None:
    subject, url = row["subject"], row["server"]
    if row["event"] in OF_WORKERS:
        return worker_message(row["event"], row["at"], subject, row["facts"], url)
    job = jobs.get(subject)
    return job and job_message(row["event"], row["at"], row["facts"], job, url)


def _chosen(database: Database, rows: list[Row]) -> dict[int, Row]:
    """Return the jobs that the notification of these deliveries tells of."""
    first = rows[0]
    owner = None if first["everyone"] else first["owner"]
    try:
        wanted = parse(first["query"]).seen_by(first["owner"])
    except ForgeError as error:
        # Another version accepted it.
        log.warning("notification_query_invalid", owner=first["owner"], error=error.message)
        return {}
    chosen = among(database, wanted, _jobs_of(rows), owner=owner)
    return {job["job_id"]: job for job in chosen}


def _jobs_of(rows: Iterable[Row]) -> list[int]:
    return sorted({row["subject"] for row in rows if row["event"] not in OF_WORKERS})

"""What notifications say: a message for programs, and a line of it for people."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

import structlog
from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, DatabaseActor, Row, run
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import Approval
from forge_schema.model.quantities import duration_text, exit_in_words
from forge_schema.model.states import OF_WORKERS, State, in_words, reason_in_words

Facts = Mapping[str, Any]
OF_JOB = ("name", "owner", "queue", "attempt", "reason", "exit_code", "detail", "ran_s", "cost")
# What a job that has started lacks; it may have ended before its message is written.
OF_AN_END = ("reason", "exit_code", "detail", "ran_s", "cost")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
LONGEST_DETAIL = 300
# Longer than a statement takes: a row is seen only once it is committed.
LATE = timedelta(seconds=60)
# After so long without a sweeper, nobody wants to hear of what happened before.
LONGEST = timedelta(days=1)
BATCH = 500
KEEP = timedelta(days=30)

log = structlog.get_logger(__name__)


def trial_message(name: str, server: str | None) -> dict[str, Any]:
    """Return the message that tries whether a notification arrives; its time is yet to be set."""
    return {"type": "test", "data": {"notification": name, "url": server}}


def job_message(event: str, at: datetime, facts: Facts, job: Facts, url: str | None) -> Facts:
    """Return the message about a job: what was known of the event goes before what is now."""
    if event == "started":
        job = {**job, **dict.fromkeys(OF_AN_END), "state": State.RUNNING}
    fields = {name: facts.get(name, job.get(name)) for name in OF_JOB}
    about = {"id": job["job_id"], **fields, "state": in_words(job["state"])}
    about |= {"worker": job.get("worker"), "url": url and f"{url}/jobs/{job['job_id']}"}
    if approval := facts.get("approval"):
        about["approval"] = approval
    return _message(f"job.{event}", at, {"job": about})


def worker_message(
    event: str, at: datetime, worker_id: int, facts: Facts, url: str | None
) -> Facts:
    """Return the message about a worker that is silent or suspected."""
    link = url and f"{url}/workers/{worker_id}"
    about = {"id": worker_id, **facts, "url": link}
    return _message(event.replace("_", ".", 1), at, {"worker": about})


def _message(kind: str, at: datetime, data: Facts) -> Facts:
    return {"type": kind, "timestamp": at.astimezone(UTC).isoformat(), "data": data}


def url_of(message: Facts) -> str | None:
    """Return the page of the job or the worker that a message is about."""
    data = message["data"]
    url: str | None = (data.get("job") or data.get("worker") or data).get("url")
    return url


def line(message: Facts) -> str:
    """Return a message as one line of plain text."""
    data = message["data"]
    if message["type"] == "test":
        return f"Forge: the notification {plain(data['notification'])!r} works"
    if message["type"] == "worker.offline":
        return f"Forge: worker {plain(data['worker']['name'])} is offline"
    if message["type"] == "worker.suspected":
        worker = data["worker"]
        return f"Forge: worker {plain(worker['name'])} is suspected: {plain(worker['why'])}"
    job = data["job"]
    text = f"Forge: job {job['id']} {plain(job['name'])!r} of {plain(job['owner'])}"
    return f"{text} {_happened(message['type'].removeprefix('job.'), job)}"


def _happened(event: str, job: Facts) -> str:
    match event:
        case "started":
            return f"started on {plain(job['worker'])}" if job["worker"] else "started"
        case "succeeded":
            return f"succeeded{_after(job)}"
        case "cancelled":
            return "was cancelled"
        case "stalled":
            return f"no longer progressed, and attempt {job['attempt']} was ended"
        case "approval":
            amount = Approval.model_validate(job["approval"]).amount
            return f"waits for approval: it may spend {amount}"
    why = _why(job)
    return ": ".join(filter(None, (f"failed{_after(job)} ({why})", _first_line(job["detail"]))))


def _why(job: Facts) -> str:
    if job["reason"] == "exit_code":
        return exit_in_words(job["exit_code"])
    return reason_in_words(job["reason"])


def _after(job: Facts) -> str:
    return f" after {duration_text(job['ran_s'])}" if job["ran_s"] else ""


def _first_line(detail: str | None) -> str:
    return plain((detail or "").split("\n", 1)[0])[:LONGEST_DETAIL]


def plain(text: object) -> str:
    """Return a text without control characters, which would break a header or a line."""
    return CONTROLS.sub(" ", str(text))


class Noticing(DatabaseActor):
    """Makes deliveries of events. Each step is idempotent, and safe beside other sweepers."""

    def withhold(self) -> int:
        """Pause notifications whose makers may not see the jobs any more; resume others."""
        changed = self._database.rows("withhold_notifications", again=True, actor=self._actor)
        for row in changed:
            log.warning("notification_paused" if row["withheld"] else "notification_resumed", **row)
        return len(changed)

    def notice(self) -> int:
        """Make a delivery of each new event and each notification that may tell of it."""
        span = self._database.row("noticed", again=True, late=LATE, longest=LONGEST)
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
    # Most queues have no notifications, and their sweepers begin sooner without these.
    from forge_schema.job_filter import parse  # noqa: PLC0415
    from forge_schema.read.job_pages import among  # noqa: PLC0415

    first = rows[0]
    try:
        wanted = parse(first["query"]).seen_by(first["owner"])
    except ForgeError as error:
        # Another version accepted it.
        log.warning("notification_query_invalid", owner=first["owner"], error=error.message)
        return {}
    chosen = among(database, wanted, _jobs_of(rows), scope=first["scope"])
    return {job["job_id"]: job for job in chosen}


def _jobs_of(rows: Iterable[Row]) -> list[int]:
    return sorted({row["subject"] for row in rows if row["event"] not in OF_WORKERS})

"""An owner's schedules, by name, and the submission of those that are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
import structlog
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from forge_schema.database.pool import (
    Connection,
    Database,
    DatabaseUnreachable,
    Row,
    explicable,
    run,
)
from forge_schema.ending import storable
from forge_schema.model.errors import ForgeError, JobInvalid, nearest
from forge_schema.model.job import Firing, IdempotencyConflict, Schedule
from forge_schema.model.states import TERMINAL_STATES
from forge_schema.schedules.times import INSTANT, Cron, spelled_out

if TYPE_CHECKING:
    from forge_schema.model.spec import JobSpec
    from forge_schema.queue.submission import LaneIds

SHOWN = 3

log = structlog.get_logger(__name__)


class NoSuchSchedule(ForgeError):
    """The owner has no schedule with this name."""

    code = "schedule_not_found"


class StillRunning(ForgeError):
    """The schedule's last job has not ended, and may not run twice at once."""

    code = "schedule_still_running"

    def __init__(self, schedule: Row) -> None:
        super().__init__(
            f"job {schedule['last_job_id']} of the schedule {schedule['name']!r} has not ended,"
            " and was to be alone (--no-overlap)",
            hint=f"wait, or end it: `forge cancel {schedule['last_job_id']}`",
        )


class Schedules:
    """The schedules of one owner.

    Args:
        owner: whose schedules they are.
    """

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def keep(
        self, name: str, cron: str, spec: Mapping[str, Any], *, timezone: str, overlap: bool
    ) -> Schedule:
        """Store a job under a name, replacing any schedule before, and return the schedule.

        Raises:
            CronInvalid: the expression is wrong or never falls due.
            TimezoneUnknown: there is no such time zone.
        """
        self._database.rows(
            "put_schedule",
            again=True,
            owner=self._owner,
            name=name,
            cron=spelled_out(cron),
            timezone=timezone,
            spec=Jsonb(dict(spec)),
            overlap=overlap,
            next_at=first_time(self._database, cron, timezone),
            actor=self._actor,
        )
        return self.get(name)

    def get(self, name: str) -> Schedule:
        """Return a schedule; `NoSuchSchedule` if there is none with this name."""
        return _schedule(self._row(name))

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause a schedule, or resume it. Times that passed while it was paused are left out.

        Raises:
            NoSuchSchedule: there is none with this name.
            CronInvalid: it was paused because it has no more times.
        """
        row = self._row(name)
        self._database.rows(
            "pause_schedule",
            again=True,
            owner=self._owner,
            name=name,
            paused=paused,
            next_at=None if paused else Cron(row["cron"], row["timezone"]).after(row["now"]),
            actor=self._actor,
        )

    def run(self, name: str, at: datetime, lane_ids: LaneIds) -> int:
        """Submit a schedule's job now, whenever it is due next, and return the job's id.

        Args:
            name: the schedule's name.
            at: names this run: a repeat returns the same job.
            lane_ids: the lanes found so far.

        Raises:
            NoSuchSchedule: there is none with this name.
            StillRunning: its last job has not ended, and it may not overlap.
            JobInvalid: this version takes no such job.
        """
        # No run by hand is that of a time, which has whole minutes.
        due_at = at.replace(second=at.second or 1, microsecond=0)
        with _alone(self._database, self._row(name)) as (database, row):
            try:
                job = _job({**row, "next_at": due_at})
            except ValidationError as error:
                raise JobInvalid(("spec",), error.errors()) from error
            job_id = _before(database, job)
            if job_id is None:
                if _unfinished(row):
                    raise StillRunning(row)
                job_id = _submit(database, job, self._actor, lane_ids)
            note = {"schedule_id": row["id"], "due_at": due_at, "job_id": job_id}
            database.rows("ran_schedule", again=True, **note)
        return job_id

    def remove(self, name: str) -> None:
        """Remove a schedule. The jobs that it has submitted stay.

        Raises:
            NoSuchSchedule: there is none with this name.
        """
        removed = self._database.row(
            "delete_schedule", owner=self._owner, name=name, actor=self._actor
        )
        if removed is None:
            raise self._unknown(name)

    def _row(self, name: str) -> Row:
        row = self._database.row("schedules", again=True, scope=[self._owner], name=name)
        if row is None:
            raise self._unknown(name)
        return row

    def _unknown(self, name: str) -> NoSuchSchedule:
        rows = self._database.rows("schedules", again=True, scope=[self._owner], name=None)
        near = nearest(name, (row["name"] for row in rows))
        hint = f"{near}`forge schedule list` lists them"
        return NoSuchSchedule(f"{self._owner} has no schedule {name!r}", hint=hint)


def first_time(database: Database, cron: str, timezone: str) -> datetime:
    """Return the next time of a cron expression.

    Raises:
        CronInvalid: the expression is wrong or never falls due.
        TimezoneUnknown: there is no such time zone.
    """
    times = Cron(cron, timezone)
    clock = database.row("clock", again=True)
    assert clock is not None  # noqa: S101 - the statement selects one row always
    return times.after(clock["now"])


def listed(database: Database, scope: list[str] | None) -> list[Schedule]:
    """Return the schedules of some owners or of all, by name."""
    rows = database.rows("schedules", again=True, scope=scope, name=None)
    return [_schedule(row) for row in rows]


def _schedule(row: Row) -> Schedule:
    return Schedule.model_validate({**row, "next_times": _next_times(row)})


def _next_times(row: Row) -> list[datetime]:
    try:
        times = Cron(row["cron"], row["timezone"])
    except ForgeError:
        return []  # this machine does not know the time zone; `error` says so
    if row["paused"] or row["next_at"] > row["now"]:
        return times.following(row["now"], SHOWN)
    # A time that is due stays the next one until a sweeper has handled it.
    due = times.following(row["next_at"] - INSTANT, 1)
    return due + times.following(row["now"], SHOWN - 1)


class DueSchedules:
    """Fires schedules.

    A schedule's time is in its job's idempotency key, and only the sweeper that finds the schedule
    still at this time moves it on. So nothing is locked meanwhile, unless its jobs may not overlap:
    whoever dies in between, or loses an answer, is repeated without a second job.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lane_ids: LaneIds = {}

    def fire(self, count: int) -> int:
        """Fire up to `count` due schedules; return how many were due.

        Times that passed without a sweeper are one: the first of them. One schedule's failure is
        stored with it and stops no other.
        """
        rows = self._database.rows("due_schedules", again=True, count=count)
        for row in rows:
            self._fire(row)
        return len(rows)

    def _fire(self, due: Row) -> None:
        with _alone(self._database, due) as (database, now):
            if now.get("next_at") != due["next_at"]:
                return  # another sweeper has moved it on, with its job
            row = {**now, **due}
            job_id, error = self._tried(database, row)
            next_at, end = _next(row)
            database.rows(
                "move_schedule",
                again=True,
                schedule_id=row["id"],
                due_at=row["next_at"],
                next_at=next_at,
                job_id=job_id,
                error=storable(error or end),
            )
        if error := error or end:
            log.warning("schedule_not_fired", schedule=due["name"], owner=due["owner"], error=error)

    def _tried(self, database: Database, row: Row) -> tuple[int | None, str | None]:
        """Return the job for a due time, or why there is none."""
        if row["withheld"] is not None:
            hint = "`forge schedule pause` and `resume` by somebody who may submit take it over"
            return None, f"skipped: {row['withheld']}; {hint}"
        if _unfinished(row):
            return None, f"skipped: job {row['last_job_id']} had not ended (--no-overlap)"
        try:
            return self._submitted(database, row), None
        except DatabaseUnreachable:
            raise
        except ValidationError as error:
            fault = error.errors()[0]
            return None, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        except ForgeError as error:
            return None, f"{error.message}; {error.hint}" if error.hint else error.message
        except Exception as error:  # other schedules must not depend on it
            if isinstance(error, psycopg.Error) and explicable(error):
                raise  # by an open transaction, which ends with it
            return None, f"{type(error).__name__}: {error}"

    def _submitted(self, database: Database, row: Row) -> int:
        job = _job(row)
        try:
            return _submit(database, job, f"schedule:{row['name']}", self._lane_ids)
        except IdempotencyConflict:
            # Submitted before, and then the schedule got another job.
            if (job_id := _before(database, job)) is None:
                raise
            return job_id


class OpenTransaction(Database):
    """Runs statements in a transaction that is open; one that fails is undone alone.

    It raises the driver's errors, of which `Database.transaction` says what is wrong.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:  # noqa: ARG002 - the transaction is repeated, or nothing is
        with self._connection.transaction():
            return run(self._connection, name, params)


@contextmanager
def _alone(database: Database, row: Row) -> Iterator[tuple[Database, Row]]:
    """Yield what submits a schedule's job and notes it, and the schedule.

    One whose jobs may not overlap is locked from before the state of its last job is read until a
    new one is noted, which both happen or neither: other times and runs by hand wait for that.
    """
    if row["overlap"]:
        yield database, row
        return
    with database.transaction() as connection:
        locked = OpenTransaction(connection)
        locked.rows("lock_schedule", schedule_id=row["id"])
        # Statements see what was committed before they began, so the lock is taken by another one.
        now = locked.row("schedules", scope=[row["owner"]], name=row["name"])
        yield locked, now or row


def _unfinished(row: Row) -> bool:
    """Tell whether a schedule waits for the end of its last job."""
    return not row["overlap"] and row.get("last_state") not in {None, *TERMINAL_STATES}


def _job(row: Row) -> JobSpec:
    """Return a schedule's job for the time `next_at`."""
    # As in `Queue.submit`: most sweepers fire nothing.
    from forge_schema.model.spec import JobSpec  # noqa: PLC0415

    key = Firing(schedule=row["name"], due_at=row["next_at"]).key(row["id"])
    return JobSpec.model_validate({**row["spec"], "owner": row["owner"], "idempotency_key": key})


def _submit(database: Database, job: JobSpec, actor: str, lane_ids: LaneIds) -> int:
    from forge_schema.queue.submission import Submission  # noqa: PLC0415 - as above

    return Submission(database, actor, lane_ids).submit([job], any_owner=False)[0]


def _before(database: Database, job: JobSpec) -> int | None:
    """Return the job that was submitted with the same key before, if there is one."""
    asked = {"owners": [job.owner], "keys": [job.idempotency_key]}
    rows = database.rows("submitted_before", again=True, **asked)
    return int(rows[0]["id"]) if rows else None


def _next(row: Row) -> tuple[datetime | None, str | None]:
    try:
        return Cron(row["cron"], row["timezone"]).after(row["now"]), None
    except ForgeError as error:
        return None, f"paused: {error.message}"
    except Exception as error:  # noqa: BLE001 - other schedules must not depend on it
        return None, f"paused: {type(error).__name__}: {error}"

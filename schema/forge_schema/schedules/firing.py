"""Submit the jobs of schedules that are due, one for each time, however many sweepers try."""

from datetime import datetime

import structlog
from pydantic import ValidationError

from forge_schema.database.pool import Database, DatabaseUnreachable, Row
from forge_schema.ending.statement import storable
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import Firing
from forge_schema.model.spec import JobSpec
from forge_schema.queue.submission import IdempotencyConflict, LaneIds, Submission
from forge_schema.schedules.times import Cron

log = structlog.get_logger(__name__)


class DueSchedules:
    """Fires schedules.

    A schedule's time is in its job's idempotency key, and only the sweeper that finds the schedule
    still at this time moves it on. So nothing is locked meanwhile: whoever dies in between, or
    loses an answer, is repeated without a second job.
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

    def _fire(self, row: Row) -> None:
        job_id, error = self._tried(row)
        next_at, end = _next(row)
        if error := error or end:
            log.warning("schedule_not_fired", schedule=row["name"], owner=row["owner"], error=error)
        self._database.rows(
            "move_schedule",
            again=True,
            schedule_id=row["id"],
            due_at=row["next_at"],
            next_at=next_at,
            job_id=job_id,
            error=storable(error),
        )

    def _tried(self, row: Row) -> tuple[int | None, str | None]:
        """Return the job for a due time, or why there is none."""
        if row["withheld"] is not None:
            hint = "`forge schedule pause` and `resume` by somebody who may submit take it over"
            return None, f"skipped: {row['withheld']}; {hint}"
        if row["unfinished"] is not None:
            return None, f"skipped: job {row['unfinished']} had not ended (--no-overlap)"
        try:
            return self._submitted(row), None
        except DatabaseUnreachable:
            raise
        except ValidationError as error:
            fault = error.errors()[0]
            return None, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        except ForgeError as error:
            return None, f"{error.message}; {error.hint}" if error.hint else error.message
        except Exception as error:  # noqa: BLE001 - other schedules must not depend on it
            return None, f"{type(error).__name__}: {error}"

    def _submitted(self, row: Row) -> int:
        key = Firing(schedule=row["name"], due_at=row["next_at"]).key(row["id"])
        job = JobSpec.model_validate({**row["spec"], "owner": row["owner"], "idempotency_key": key})
        queue = Submission(self._database, f"schedule:{row['name']}", self._lane_ids)
        try:
            return queue.submit([job], any_owner=False)[0]
        except IdempotencyConflict:
            # Submitted before, and then the schedule got another job.
            found = self._database.rows(
                "submitted_before", again=True, owners=[job.owner], keys=[key]
            )
            return int(found[0]["id"])


def _next(row: Row) -> tuple[datetime | None, str | None]:
    try:
        return Cron(row["cron"], row["timezone"]).after(row["now"]), None
    except ForgeError as error:
        return None, f"paused: {error.message}"
    except Exception as error:  # noqa: BLE001 - other schedules must not depend on it
        return None, f"paused: {type(error).__name__}: {error}"

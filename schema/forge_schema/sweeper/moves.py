"""Move many rows at once. An impossible row is set aside, with an event, and stops no other."""

from collections.abc import Sequence

import psycopg
import structlog

from forge_schema.database.pool import Row
from forge_schema.model.lease import End, Ended, fence_params
from forge_schema.queue.queue import Queue

# Errors caused by the row itself, which a retry would only repeat.
IMPOSSIBLE = (psycopg.IntegrityError, psycopg.DataError)

log = structlog.get_logger(__name__)


class Moves:
    """Moves a batch at once and, if that fails, row by row.

    Args:
        queue: the queue with the leases and scheduled jobs.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._database = queue.database

    def finish(self, ends: Sequence[End], *, expired_only: bool = False) -> list[Ended]:
        """End leases as `Queue.finish` does. Those set aside are left out of the result."""
        try:
            return self._queue.finish(ends, expired_only=expired_only)
        except IMPOSSIBLE as error:
            if len(ends) > 1:
                alone = (self.finish([end], expired_only=expired_only) for end in ends)
                return [ended for answer in alone for ended in answer]
            self._set_aside("lease", error, **fence_params(ends[0].fence))
            return []

    def settle(self, run: Row) -> int:
        """Settle a run; return 1 if it was not settled before, and 0 too if it is set aside."""
        try:
            return int(self._queue.runs.settle(run) is not None)
        except IMPOSSIBLE as error:
            fence = {name: run[name] for name in ("job_id", "token", "nonce")}
            self._set_aside("lease", error, **fence)
            return 0

    def promote(self, count: int) -> int:
        """Make up to `count` due jobs ready and return their number."""
        try:
            return self._promote(None, count)
        except IMPOSSIBLE:
            due = self._database.rows("due", again=True, count=count)
            return sum(self._promote_alone(row["job_id"]) for row in due)

    def _promote_alone(self, job_id: int) -> int:
        try:
            return self._promote(job_id, 1)
        except IMPOSSIBLE as error:
            self._set_aside("scheduled", error, job_id=job_id)
            return 0

    def _promote(self, job_id: int | None, count: int) -> int:
        params = {"job_id": job_id, "count": count, "actor": self._queue.actor}
        return len(self._database.rows("promote", again=True, **params))

    def _set_aside(self, place: str, error: Exception, **row: object) -> None:
        message = str(error).strip().partition("\n")[0]
        params = {**row, "error": message, "actor": self._queue.actor}
        self._database.rows(f"set_aside_{place}", again=True, **params)
        log.error("row_set_aside", place=place, job=row["job_id"], error=message)

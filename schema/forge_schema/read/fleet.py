"""Pages of workers, and one worker with its jobs, attempts and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from forge_schema.database.pool import DatabaseUser, Row, run
from forge_schema.model.states import WorkerStatus
from forge_schema.model.worker import no_such_worker

PAGE = 50
ATTEMPTS = 25
# Attempts read for one page when a caller may see only some owners' among them.
LOOK = 500
EVENTS = 20
LATEST = datetime.max.replace(tzinfo=UTC)

Place = tuple[datetime, int]
"""Where a page of attempts begins: after this time and job."""


@dataclass(frozen=True)
class WorkerPage:
    """A page of rows, and where the next page begins; None at the end."""

    rows: list[Row]
    after: Any = None


class Fleet(DatabaseUser):
    """Reads workers; changes nothing."""

    def counts(self) -> dict[str, int]:
        """Return the number of workers in each status."""
        with self._database.reporting() as connection:
            rows = run(connection, "overview_fleet", {"scope": None})
        return {row["status"]: row["workers"] for row in rows}

    def page(
        self,
        *,
        words: Sequence[str] = (),
        statuses: Sequence[WorkerStatus] = (),
        after: str | None = None,
        count: int = PAGE,
    ) -> WorkerPage:
        """Return a page of workers, ordered by name.

        Args:
            words: each must occur in the worker's name, kind, GPU names or labels.
            statuses: the statuses wanted; empty means all.
            after: the name after which to begin.
            count: maximum number of workers.
        """
        params: dict[str, object] = {
            "words": [f"%{_escaped(word)}%" for word in words] or None,
            "statuses": [status.value for status in statuses] or None,
            "after": after,
            "count": count + 1,
        }
        with self._database.reporting() as connection:
            rows = run(connection, "page_workers", params)
        return WorkerPage(rows[:count], rows[count - 1]["name"] if len(rows) > count else None)

    def worker(self, worker_id: int) -> Row:
        """Return one worker; `NoSuchWorker` if it does not exist."""
        row = self._database.row("worker_page", again=True, worker_id=worker_id)
        if row is None:
            raise no_such_worker(worker_id)
        return row

    def former(self, worker_id: int) -> Row:
        """Return the id and the name of a removed worker.

        Raises:
            NoSuchWorker: no worker with this id was removed.
        """
        row = self._database.row("former_worker", again=True, worker_id=worker_id)
        if row is None:
            raise no_such_worker(worker_id)
        return row

    def jobs(self, worker_id: int) -> list[Row]:
        """Return the worker's running jobs, each with its newest sample."""
        return self._database.rows("worker_jobs", again=True, worker_id=worker_id)

    def attempts(
        self, worker_id: int, *, scope: list[str] | None = None, before: Place | None = None
    ) -> WorkerPage:
        """Return the worker's ended attempts, newest first; with a scope, only those owners'.

        With a scope, a page may be empty although there is a next one.
        """
        at, job_id = before or (LATEST, 0)
        count = ATTEMPTS + 1 if scope is None else LOOK
        rows = self._database.rows(
            "worker_attempts",
            again=True,
            worker_id=worker_id,
            before=at,
            before_job=job_id,
            count=count,
        )
        mine = [row for row in rows if scope is None or row["owner"] in scope]
        if len(mine) > ATTEMPTS:
            return WorkerPage(mine[:ATTEMPTS], _place(mine[ATTEMPTS - 1]))
        return WorkerPage(mine, _place(rows[-1]) if len(rows) == count else None)

    def events(self, worker_id: int) -> list[Row]:
        """Return the worker's newest events."""
        return self._database.rows("worker_events", again=True, worker_id=worker_id, count=EVENTS)


def _place(row: Row) -> Place:
    return row["finished_at"], row["job_id"]


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

"""Read the audit trail, which every action writes with its own transaction."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row, run

PAGE = 1000
LAST_DAY = timedelta(days=1)
FIRST_WINDOW = timedelta(hours=1)
LAST = datetime.max.replace(tzinfo=UTC)


class Audit:
    """Reads the trail, and records attempts that were refused and so changed nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(
        self,
        actor: str,
        action: str,
        detail: dict[str, object],
        *,
        worker_id: int | None = None,
        job_id: int | None = None,
    ) -> None:
        """Record an action that changed no row. A retry after a lost answer may appear twice."""
        params = {"actor": actor, "action": action, "worker_id": worker_id, "job_id": job_id}
        self._database.one("note", again=True, detail=Jsonb(detail), **params)

    def events(
        self,
        *,
        after: datetime | None = None,
        since: timedelta = LAST_DAY,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        action: str | None = None,
        count: int = PAGE,
    ) -> list[Row]:
        """Return a page of the trail, oldest first, including starts and ends of attempts.

        Args:
            after: the time of the last event seen; None begins at `since`.
            since: how long ago to begin.
            job_id: only events about this job.
            worker_id: only events about this worker.
            actor: only actions of this actor, such as `user:ann` or `worker:7`.
            action: only actions of this kind.
            count: maximum number of events.
        """
        params: dict[str, object] = {
            "job_id": job_id,
            "worker_id": worker_id,
            "actor": actor,
            "action": action,
            "count": min(count, PAGE),
        }
        # Times are parameters, so that the planner sees them.
        with self._database.reporting() as connection:
            (health,) = run(connection, "health", {})
            began = after or health["now"] - since
            for until in _windows(began, health["now"], whole=job_id is not None):
                rows = run(connection, "audit", {**params, "after": began, "until": until})
                if len(rows) >= min(count, PAGE):
                    break
        return rows


def _windows(began: datetime, now: datetime, *, whole: bool) -> Iterator[datetime]:
    """Yield later and later bounds: a page of a long trail is filled near its beginning.

    The last bound is in the future, to include events that happen meanwhile.
    """
    window = FIRST_WINDOW
    while not whole and now - began > window:
        yield began + window
        window *= 8
    yield LAST

"""The audit trail: who did what, when; written with each act, and read here."""

from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from forge_schema.database import Database, Row, run

PAGE = 1000
LAST_DAY = timedelta(days=1)


class Audit:
    """Reads the trail, and adds what leaves no other trace: what was tried and refused."""

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
        """Write down an act that changed no row. A repeat after a lost answer may show twice."""
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
        """Return a page of the trail, oldest first, dispatches and ends of attempts included.

        Args:
            after: the time of the last event seen; without it, what is younger than `since`.
            since: how far back to begin.
            job_id: only events of this job.
            worker_id: only events of this worker.
            actor: only acts of this actor, such as `user:ann` or `worker:7`.
            action: only acts of this kind.
            count: how many at most.
        """
        params = {
            "after": after,
            "since": since,
            "job_id": job_id,
            "worker_id": worker_id,
            "actor": actor,
            "action": action,
            "count": min(count, PAGE),
        }
        with self._database.reporting() as connection:
            return run(connection, "audit", params)

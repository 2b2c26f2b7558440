"""What can be read of jobs: state, attempts, logs, metrics, artifacts, events."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from forge_schema.database.pool import Database, Row
from forge_schema.model.spec import with_shares
from forge_schema.model.states import State, Verdict
from forge_schema.queue.inputs import JobUnknown
from forge_schema.read import job_pages
from forge_schema.read.job_filter import Filter

PAGE = 1000
CHUNKS = 100

Place = tuple[int, int, int]
"""Where a log chunk stands in the reading order: token, rank, number."""


class Jobs:
    """Reads; nothing here changes a row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def job(self, job_id: int) -> Row:
        """Return one job's status and spec; what is None of its resources is a share.

        Raises:
            JobUnknown: there is no such job.
        """
        row = self._database.one("job", again=True, job_id=job_id)
        if row is None:
            raise JobUnknown(f"there is no job {job_id}", hint="`forge ps` lists the jobs")
        return {**row, "spec": with_shares(row["spec"], {})}

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[State] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[Row]:
        """Return the newest jobs first, at most `count` of them."""
        if states is not None and not states:
            return []
        wanted = Filter().having("state", *(state.value for state in states or ()))
        ids: list[int] = []
        count = min(count, PAGE)
        # A page may have few of the jobs or none, and yet a next one: each looks at so many.
        while len(ids) < count:
            rest = count - len(ids)
            page = job_pages.page(self._database, wanted, owner=owner, before=before, count=rest)
            ids += [row["job_id"] for row in page.jobs]
            before = page.before
            if before is None:
                break
        rows = {row["job_id"]: row for row in self.statuses(ids)}
        return [rows[job_id] for job_id in ids]

    def statuses(self, job_ids: Sequence[int], *, owner: str | None = None) -> list[Row]:
        """Return the status of some jobs in one query; an unknown id has no row.

        With an owner, nor has anybody else's job.
        """
        return self._database.rows("statuses", again=True, job_ids=list(job_ids), owner=owner)

    def attempts(self, job_id: int) -> list[Row]:
        return self._database.rows("attempts", again=True, job_id=job_id)

    def artifacts(self, job_id: int) -> list[Row]:
        return self._database.rows("artifacts", again=True, job_id=job_id)

    def checkpoints(self, job_id: int) -> list[Row]:
        """Return the complete checkpoints, the newest first."""
        return self._database.rows("checkpoints", again=True, job_id=job_id)

    def events(self, job_id: int) -> list[Row]:
        return self._database.rows("events", again=True, job_id=job_id)

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[Row]:
        """Return a hundred log chunks after a (token, rank, number), in reading order.

        With an attempt or a rank only its own; with a time, those stored since.
        """
        chosen = {"attempt": attempt, "only_rank": rank, "since": since}
        return self._log("log_chunks", job_id, after, chosen)

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[Row]:
        """Return a hundred log chunks before a place, the last one first; else as `log_chunks`."""
        chosen = {"attempt": attempt, "only_rank": rank, "since": since}
        return self._log("log_chunks_before", job_id, before, chosen)

    def _log(self, name: str, job_id: int, place: Place, chosen: Mapping[str, object]) -> list[Row]:
        token, rank, number = place
        at = {"token": token, "rank": rank, "number": number}
        return self._database.rows(name, again=True, job_id=job_id, count=CHUNKS, **at, **chosen)

    def metrics(
        self,
        job_id: int,
        *,
        after: tuple[int, int] = (0, -1),
        rank: int = 0,
        attempt: int | None = None,
    ) -> list[Row]:
        """Return the metric lines of a rank after a (token, number), in the order written."""
        chosen = {"job_id": job_id, "rank": rank, "attempt": attempt}
        return self._database.rows(
            "metrics", again=True, token=after[0], number=after[1], count=PAGE, **chosen
        )

    def last_metrics(self, job_id: int, *, rank: int = 0, attempt: int | None = None) -> list[Row]:
        """Return what a rank wrote last under each key, in the last thousand lines of an attempt.

        Without an attempt, of the newest one that wrote any.
        """
        chosen = {"job_id": job_id, "rank": rank, "attempt": attempt}
        return self._database.rows("metrics_last", again=True, count=PAGE, **chosen)

    def result(self, job_id: int) -> Row | None:
        """Return what the job found, of the attempt that counts; None where it said nothing."""
        return self._database.one("result", again=True, job_id=job_id)

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[Verdict] | None = None,
        after: int = -1,
        count: int = PAGE,
    ) -> list[Row]:
        """Return how the tests of the newest attempt that has any ended, after a number."""
        return self._database.rows(
            "tests",
            again=True,
            job_id=job_id,
            attempt=attempt,
            verdicts=None if verdicts is None else [verdict.value for verdict in verdicts],
            after=after,
            count=min(count, PAGE),
        )

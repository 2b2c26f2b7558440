"""What can be read of jobs: state, attempts, logs, metrics, artifacts, events, reports."""

from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from forge_schema.database import KEEPALIVE, Database, Row, explained
from forge_schema.errors import ForgeError
from forge_schema.sources import JobUnknown
from forge_schema.statements import views
from forge_schema.states import State, Verdict

PAGE = 1000


class ReportUnknown(ForgeError):
    """There is no report of this name."""

    code = "report_unknown"


class Jobs:
    """Reads; nothing here changes a row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def job(self, job_id: int) -> Row:
        """Return one job's status and spec.

        Raises:
            JobUnknown: there is no such job.
        """
        row = self._database.one("job", again=True, job_id=job_id)
        if row is None:
            raise JobUnknown(f"there is no job {job_id}", hint="`forge ps` lists the jobs")
        return row

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[State] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[Row]:
        """Return the newest jobs first, at most `count` of them."""
        words = None if states is None else [state.value for state in states]
        return self._database.rows(
            "jobs", again=True, owner=owner, states=words, before=before, count=min(count, PAGE)
        )

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
        self, job_id: int, *, after: tuple[int, int, int], attempt: int | None = None
    ) -> list[Row]:
        """Return the log chunks after a (token, rank, number), in reading order."""
        token, rank, number = after
        return self._database.rows(
            "log_chunks",
            again=True,
            job_id=job_id,
            token=token,
            rank=rank,
            number=number,
            attempt=attempt,
            count=100,
        )

    def metrics(self, job_id: int, *, after: tuple[int, int] = (0, -1)) -> list[Row]:
        """Return the metric lines after a (token, number), in the order written."""
        return self._database.rows(
            "metrics", again=True, job_id=job_id, token=after[0], number=after[1], count=PAGE
        )

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

    def report(self, name: str, *, count: int = PAGE) -> list[Row]:
        """Return the rows of a reporting view, on a connection planned as usual.

        Raises:
            ReportUnknown: there is no such view.
        """
        if name not in views():
            raise ReportUnknown(f"there is no report {name!r}", hint=f"one of {', '.join(views())}")
        query = sql.SQL("SELECT * FROM {} LIMIT %s").format(sql.Identifier(name))
        try:
            with psycopg.connect(self._database.url, row_factory=dict_row, **KEEPALIVE) as plain:
                return plain.execute(query, [count]).fetchall()
        except psycopg.OperationalError as error:
            raise explained(error, self._database.url) from error

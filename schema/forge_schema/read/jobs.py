"""Read jobs: state, attempts, logs, metrics, artifacts, events."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any

from forge_schema.database.pool import Database, DatabaseUser, Row
from forge_schema.job_filter import Filter
from forge_schema.model.job import job_unknown
from forge_schema.model.reading import Place
from forge_schema.model.results import most_telling
from forge_schema.model.spec import (
    GANG_NETWORK,
    HANDLERS,
    INPUT,
    MAX_PRICE,
    PREFERS_SPOT,
    RUNS,
    SECRET,
    SPOT,
    as_asked,
)
from forge_schema.model.states import Verdict
from forge_schema.model.stored import BYTES, CHUNKS, PAGE
from forge_schema.read import job_pages

ANY = Filter()
# How many of its metrics a listed job has.
MOST_METRICS = 4

RUNS_SHOWN = 100
EVENTS_SHOWN = 100
BUNDLES_SHOWN = 20
# Labels that the queue itself adds to a shape, or begins their names with.
OWN_LABELS = (RUNS, HANDLERS, GANG_NETWORK, SECRET, INPUT, SPOT, PREFERS_SPOT, MAX_PRICE)


class Jobs(DatabaseUser):
    """Reads jobs; changes nothing."""

    def job(self, job_id: int) -> Row:
        """Return one job's status and spec. A resource of None is a share of the worker.

        Raises:
            JobUnknown: there is no such job.
        """
        row = self._database.row("job", again=True, job_id=job_id)
        if row is None:
            raise job_unknown(job_id)
        return {**row, "spec": as_asked(row["spec"])}

    def jobs(
        self,
        wanted: Filter = ANY,
        *,
        scope: list[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[Row]:
        """Return up to `count` jobs that match a filter, newest first."""
        return self.search(wanted, scope=scope, before=before, count=count)[0]

    def search(
        self,
        wanted: Filter = ANY,
        *,
        scope: list[str] | None = None,
        before: int | None = None,
        count: int = 50,
        look: float = inf,
    ) -> tuple[list[Row], int | None]:
        """Return up to `count` jobs that match a filter, newest first, and where to go on.

        That is None unless about `look` jobs were examined, and there are older ones.
        """
        ids, before = self._matching(wanted, scope, before, min(count, PAGE), look)
        rows = {row["job_id"]: row for row in self.listed(ids)}
        return [rows[job_id] for job_id in ids], before

    def listed(self, job_ids: Sequence[int]) -> list[Row]:
        """Return some jobs as a list shows them, each with a few of its last `metrics`."""
        rows = self._database.rows("listed_jobs", again=True, job_ids=list(job_ids))
        return [{**row, "metrics": most_telling(row["metrics"], MOST_METRICS)} for row in rows]

    def ids(
        self,
        wanted: Filter,
        *,
        scope: list[str] | None = None,
        before: int | None = None,
        count: int,
    ) -> list[int]:
        """Return the ids of up to `count` jobs that match a filter, newest first."""
        return self._matching(wanted, scope, before, count, inf)[0]

    def _matching(
        self, wanted: Filter, scope: list[str] | None, before: int | None, count: int, look: float
    ) -> tuple[list[int], int | None]:
        ids: list[int] = []
        looked = 0
        # A page examines a limited number of jobs, so a short one may have a next one.
        while len(ids) < count:
            rest = count - len(ids)
            page = job_pages.page(self._database, wanted, scope=scope, before=before, count=rest)
            ids += [row["job_id"] for row in page.jobs]
            looked += page.looked
            before = page.before
            if before is None or looked >= look:
                return ids, before
        return ids, None

    def statuses(self, job_ids: Sequence[int], *, scope: list[str] | None = None) -> list[Row]:
        """Return the status of some jobs in one query.

        Unknown ids, and jobs of owners outside of the scope, are left out.
        """
        return self._database.rows("statuses", again=True, job_ids=list(job_ids), scope=scope)

    def attempts(self, job_id: int) -> list[Row]:
        return self._database.rows("attempts", again=True, job_id=job_id)

    def artifacts(
        self, job_id: int, *, after: str | None = None, count: int | None = None
    ) -> list[Row]:
        """Return the artifacts after a path, ordered by path; all without a count."""
        return self._database.rows("artifacts", again=True, job_id=job_id, after=after, count=count)

    def artifact(self, job_id: int, path: str) -> Row | None:
        """Return the artifact with a path, or None."""
        return self._database.row("artifact", again=True, job_id=job_id, path=path)

    def checkpoints(self, job_id: int) -> list[Row]:
        """Return the complete checkpoints, newest first."""
        return self._database.rows("checkpoints", again=True, job_id=job_id)

    def events(self, job_id: int) -> list[Row]:
        """Return all events, oldest first."""
        return self._database.rows("events", again=True, job_id=job_id, count=None)[::-1]

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[Row]:
        """Return up to a hundred log chunks after a (token, rank, number), in reading order.

        Optionally only those of an attempt or a rank, or those stored since a time.
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
        """Return up to a hundred log chunks before a position, last one first; see `log_chunks`."""
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
            "metrics",
            again=True,
            token=after[0],
            number=after[1],
            count=PAGE,
            bytes=BYTES,
            **chosen,
        )

    def last_metrics(self, job_id: int, *, rank: int = 0, attempt: int | None = None) -> list[Row]:
        """Return the last value of each metric of a rank, among an attempt's last thousand lines.

        Without an attempt, the newest one with metrics is used.
        """
        chosen = {"job_id": job_id, "rank": rank, "attempt": attempt}
        return self._database.rows("metrics_last", again=True, count=PAGE, **chosen)

    def result(self, job_id: int, *, rank: int = 0) -> Row | None:
        """Return the result of a rank in the attempt that counts; None if there is none."""
        return self._database.row("result", again=True, job_id=job_id, rank=rank)

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[Verdict] | None = None,
        after: int = -1,
        count: int = PAGE,
    ) -> list[Row]:
        """Return test results after a number, from the newest attempt that has any."""
        return self._database.rows(
            "tests",
            again=True,
            job_id=job_id,
            attempt=attempt,
            verdicts=None if verdicts is None else [verdict.value for verdict in verdicts],
            after=after,
            count=min(count, PAGE),
            bytes=BYTES,
        )


class JobStory:
    """Reads the data of one job, which the caller must be allowed to see."""

    def __init__(self, database: Database, job_id: int) -> None:
        self._database = database
        self._job_id = job_id

    def runs(self) -> list[Row]:
        """Return the newest attempts, oldest first; `finished_at` is None while one runs."""
        return self._rows("job_runs", count=RUNS_SHOWN)

    @staticmethod
    def ran_s(runs: Iterable[Row]) -> float:
        """Return how long the program has run, in all these attempts."""
        began = [run for run in runs if run["started_at"] and run["rank"] == 0]
        spans = [(run["finished_at"] or run["now"]) - run["started_at"] for run in began]
        return sum(spans, timedelta()).total_seconds()

    def spent(self) -> Row:
        """Return the `cost` so far, and the `gpu_seconds` of all ended attempts."""
        (row,) = self._rows("job_spent")
        return row

    def events(self) -> list[Row]:
        """Return the job's events, newest first."""
        return self._rows("events", count=EVENTS_SHOWN)

    def artifacts(self, *, after: str = "", count: int) -> list[Row]:
        """Return artifacts after a path, ordered by path."""
        return self._rows("page_artifacts", after=after, count=count)

    def artifact(self, path: str) -> Row | None:
        """Return the artifact with a path, or None."""
        rows = self._rows("artifact", path=path)
        return rows[0] if rows else None

    def checkpoint(self, attempt: int, number: int) -> list[Row]:
        """Return the `rank` and the `key` of each part of a complete checkpoint."""
        return self._rows("checkpoint_parts", attempt=attempt, number=number)

    def asked(self) -> dict[str, Any]:
        """Return the fields of `JobSpec` that submit the same job again, without its owner."""
        return {name: value for name, value in self.asked_as()[1].items() if name != "owner"}

    def asked_as(self) -> tuple[str, dict[str, Any]]:
        """Return the version of a job's request, and its fields."""
        (row,) = self._rows("job_asked")
        labels = {
            name: value for name, value in row["labels"].items() if not name.startswith(OWN_LABELS)
        }
        fields = {name: row[name] for name in row if name not in {"spec", "version"}}
        return row["version"], {
            **fields,
            **as_asked(row["spec"]),
            "labels": labels,
            "kind": str(row["kind"]),
        }

    def _rows(self, name: str, **params: object) -> list[Row]:
        return self._database.rows(name, again=True, job_id=self._job_id, **params)


def recent_bundles(database: Database, owner: str) -> list[Row]:
    """Return the bundles of an owner's newest jobs, each with the `job_id` and `name` of one."""
    return database.rows("recent_bundles", again=True, owner=owner, count=BUNDLES_SHOWN)

"""What jobs found out, in the database itself."""

from collections.abc import Callable, Sequence

from forge_schema.database.pool import Database
from forge_schema.model.results import (
    JobTest,
    LastMetric,
    MetricLine,
    Result,
    Series,
    SweepCancelled,
    SweepPoint,
)
from forge_schema.model.states import Verdict
from forge_schema.read.benchmarks import Benchmarks
from forge_schema.read.jobs import Jobs
from forge_schema.read.series import Series as DatabaseSeries
from forge_schema.read.series import Wanted

from forge_client.direct.translation import translated
from forge_client.errors import ClientError
from forge_client.validation import checked_job


class DirectFindings:
    """Speaks SQL.

    Args:
        database: opens the database.
        owner: who acts, for the audit trail, and whose sweeps are meant unless another's are.
    """

    def __init__(self, database: Callable[[], Database], *, owner: str) -> None:
        self._database = database
        self._owner = owner

    def result(self, job_id: int) -> Result:
        with translated():
            self._jobs.job(checked_job(job_id))
            return Result.model_validate(self._jobs.result(job_id) or {})

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[str] | None = None,
        after: int = -1,
    ) -> list[JobTest]:
        words = None if verdicts is None else [_verdict(word) for word in verdicts]
        with translated():
            self._jobs.job(checked_job(job_id))
            rows = self._jobs.tests(job_id, attempt=attempt, verdicts=words, after=after)
            return [JobTest.model_validate(row) for row in rows]

    def series(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        rank: int = 0,
        keys: Sequence[str] | None = None,
        points: int = 500,
    ) -> Series:
        wanted = Wanted(attempt=attempt, rank=rank, keys=keys, points=points)
        with translated():
            self._jobs.job(checked_job(job_id))
            return Series.model_validate(DatabaseSeries(self._database()).of(job_id, wanted))

    def metrics(
        self,
        job_id: int,
        *,
        after: tuple[int, int] = (0, -1),
        rank: int = 0,
        attempt: int | None = None,
    ) -> list[MetricLine]:
        with translated():
            self._jobs.job(checked_job(job_id))
            rows = self._jobs.metrics(job_id, after=after, rank=rank, attempt=attempt)
            return [MetricLine.model_validate(row) for row in rows]

    def last_metrics(
        self, job_id: int, *, rank: int = 0, attempt: int | None = None
    ) -> list[LastMetric]:
        with translated():
            self._jobs.job(checked_job(job_id))
            rows = self._jobs.last_metrics(job_id, rank=rank, attempt=attempt)
            return [LastMetric.model_validate(row) for row in rows]

    def sweep(self, name: str, *, owner: str | None = None) -> dict[str, int]:
        with translated():
            return self._of(owner).states(name)

    def points(self, name: str, *, owner: str | None = None, after: int = 0) -> list[SweepPoint]:
        with translated():
            rows = self._of(owner).points(name, after=after)
            return [SweepPoint.model_validate(row) for row in rows]

    def cancel_sweep(self, name: str, *, owner: str | None = None) -> SweepCancelled:
        with translated():
            return SweepCancelled.model_validate(self._of(owner).cancel(name))

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._database())

    def _of(self, owner: str | None) -> Benchmarks:
        actor = f"user:{self._owner}"
        return Benchmarks(self._database(), owner=owner or self._owner, actor=actor)


def _verdict(word: str) -> Verdict:
    try:
        return Verdict(word)
    except ValueError:
        raise ClientError(
            f"{word!r} is not a verdict",
            hint=f"one of {', '.join(Verdict)}",
            code="option_invalid",
        ) from None

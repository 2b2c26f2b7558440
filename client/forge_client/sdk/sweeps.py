"""Many jobs: waiting for them, in the manner of `concurrent.futures`; and those of a matrix."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from forge_schema.model.job import ListedJob, job_unknown
from forge_schema.model.quantities import counted, duration_text
from forge_schema.model.results import SweepCancelled, SweepPoint
from pydantic import PrivateAttr

from forge_client.backend import Backend
from forge_client.errors import InvalidInput, Outage, as_client_error
from forge_client.findings import all_points
from forge_client.project.request import several
from forge_client.results.comparison import PointGroup
from forge_client.results.comparison import compare as compared
from forge_client.sdk.arguments import checked, checked_verbs, waiting_s
from forge_client.sdk.job import Job
from forge_client.sdk.rows import Rows, follow
from forge_client.sdk.spec import Time

J = TypeVar("J", bound=Job)
POLL_S = 0.5
QUICK_POLL_S = 0.1


class FoundJob(ListedJob):
    """A row of `Client.jobs`, a job as it was then; `job` is the job itself, to act on."""

    _backend: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, row: ListedJob, backend: Backend) -> Self:
        """Return a row, with where its job is."""
        made = cls.model_construct(row.model_fields_set, **dict(row))
        made._backend = backend  # noqa: SLF001 - its own
        return made

    @property
    def job(self) -> Job:
        """The job."""
        return Job(self._backend, self.job_id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if not name.startswith("_") and hasattr(Job, name):
                raise AttributeError(f"a row of jobs has no {name!r}: write row.job.{name}")
            return super().__getattr__(name)


class Waited(NamedTuple):
    """What `wait` returns."""

    done: set[Job]
    not_done: set[Job]


@checked
def as_completed(jobs: Iterable[J] | J, timeout: Time | None = None) -> Iterator[J]:
    """Yield jobs as they end, successfully or not, with a few queries for any number of jobs.

    Args:
        jobs: the jobs.
        timeout: how long to wait for all of them, such as `"1m"`, or in seconds.

    Raises:
        TimeoutError: some jobs have not ended in time.
    """
    pending = dict.fromkeys(_each(jobs))
    limit_s = waiting_s(timeout)
    deadline = None if limit_s is None else time.monotonic() + limit_s
    pause, outage = QUICK_POLL_S, Outage()
    while pending:
        ended = outage.ask(lambda: _ended(pending)) or []
        for job in ended:
            del pending[job]
            yield job
        if not pending:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"{counted(len(pending), 'job')} did not end within {duration_text(limit_s or 0)}"
            )
        pause = QUICK_POLL_S if ended else min(pause * 1.3, POLL_S)
        time.sleep(pause)


@checked
def wait(jobs: Iterable[Job | FoundJob] | Job, timeout: Time | None = None) -> Waited:
    """Wait until all jobs have ended, or for as long as `timeout`; return both sets."""
    waited = Waited(set(), set(_each(jobs)))
    try:
        for job in as_completed(list(waited.not_done), timeout):
            waited.not_done.discard(job)
            waited.done.add(job)
    except TimeoutError:
        pass
    return waited


def _each(jobs: Iterable[J | FoundJob] | J) -> Iterable[J]:
    given: Any = jobs
    each: list[Any] = [*given] if isinstance(given, Iterable) else [given]
    each = [row.job if isinstance(row, FoundJob) else row for row in each]
    for job in each:
        if not isinstance(job, Job):
            raise InvalidInput(f"jobs: {job!r} is not a job", "give what `submit` has returned")
    return each


def _ended(jobs: Collection[J]) -> list[J]:
    by_backend: dict[Backend, list[J]] = {}
    for job in jobs:
        by_backend.setdefault(job.backend, []).append(job)
    statuses = {
        (backend, job_id): status
        for backend, theirs in by_backend.items()
        for job_id, status in backend.statuses([*{job.id for job in theirs}]).items()
    }
    with as_client_error():
        for job in jobs:
            if (job.backend, job.id) not in statuses:
                raise job_unknown(job.id)
    return [job for job in jobs if statuses[job.backend, job.id].terminal]


@checked_verbs
class Sweep:
    """A sweep by its name; every method asks the queue. `owner` None means you."""

    def __init__(self, backend: Backend, name: str, owner: str | None = None) -> None:
        self.backend = backend
        self.name = name
        self.owner = owner

    def __repr__(self) -> str:
        return f"Sweep({self.name!r})"

    def _repr_html_(self) -> str:
        return self.points()._repr_html_()

    def watch(self, timeout: Time | None = None) -> Rows[SweepPoint]:
        """Show its jobs until all have ended, as `Job.watch` does, and return them."""
        follow(self.backend, [job.id for job in self.jobs()], waiting_s(timeout))
        return self.points()

    def states(self) -> dict[str, int]:
        """Return how many of its jobs are in each state."""
        states = self.backend.findings.sweep(self.name, owner=self.owner)
        return {str(state): count for state, count in states.items()}

    def points(self) -> Rows[SweepPoint]:
        """Return its jobs with their parameters and results."""
        return Rows(all_points(self.backend.findings, self.name, owner=self.owner))

    def jobs(self) -> list[Job]:
        """Return its jobs."""
        ids = dict.fromkeys(point.job_id for point in self.points())
        return [Job(self.backend, job_id) for job_id in ids]

    def wait(self, timeout: Time | None = None) -> Rows[SweepPoint]:
        """Wait until all its jobs have ended, or for as long as `timeout`; return them all."""
        wait(self.jobs(), timeout)
        return self.points()

    def limit(self, parallel: int) -> None:
        """Change how many of its jobs run at once."""
        self.backend.findings.set_parallel(self.name, parallel, owner=self.owner)

    def cancel(self) -> SweepCancelled:
        """Cancel its unfinished jobs."""
        return self.backend.findings.cancel_sweep(self.name, owner=self.owner)

    def compare(
        self,
        other: "Sweep | None" = None,
        *,
        metric: str = "seconds",
        by: Sequence[str] | str | None = None,
    ) -> Rows[PointGroup]:
        """Compare the results of its successful jobs, or of two sweeps.

        Args:
            other: another sweep; each ratio is then to the same group of this one, and else to
                the first group.
            metric: `seconds`, `gpu_seconds`, `energy_j`, a key of the result, such as `a.b`, or a
                metric, such as `loss` or `loss.best`.
            by: the parameters to group by; None means all except `repeat` and `trial`.

        Raises:
            ClientError: no job has the parameter, or no job reports the metric as a number.
        """
        sweeps = [self, *([other] if other else [])]
        points = {sweep.name: sweep.points() for sweep in sweeps}
        return Rows(compared(points, metric, None if by is None else several(by)).groups)

"""A sweep: the jobs of a matrix, and what they found."""

from collections.abc import Sequence

from forge_schema.model.results import SweepCancelled, SweepPoint

from forge_client.backend import Backend
from forge_client.findings import all_points
from forge_client.project.request import several
from forge_client.results.comparison import PointGroup
from forge_client.results.comparison import compare as compared
from forge_client.sdk.futures import wait
from forge_client.sdk.job import Job
from forge_client.sdk.rows import Rows, follow


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

    def watch(self, timeout: float | None = None) -> Rows[SweepPoint]:
        """Show its jobs until all have ended, as `Job.watch` does, and return them."""
        follow(self.backend, [job.id for job in self.jobs()], timeout)
        return self.points()

    def states(self) -> dict[str, int]:
        """Return how many of its jobs are in each state."""
        return self.backend.findings.sweep(self.name, owner=self.owner)

    def points(self) -> Rows[SweepPoint]:
        """Return its jobs with their parameters and results."""
        return Rows(all_points(self.backend.findings, self.name, owner=self.owner))

    def jobs(self) -> list[Job]:
        """Return its jobs."""
        ids = dict.fromkeys(point.job_id for point in self.points())
        return [Job(self.backend, job_id) for job_id in ids]

    def wait(self, timeout: float | None = None) -> Rows[SweepPoint]:
        """Wait until all its jobs have ended, or for `timeout` seconds; return them all."""
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

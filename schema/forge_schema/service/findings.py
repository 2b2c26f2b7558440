"""The verbs about what jobs found out: results, tests, metrics, runs, and sweeps."""

from collections.abc import Sequence
from typing import Literal

from forge_schema.job_filter import parse
from forge_schema.model.errors import ForgeError
from forge_schema.model.results import (
    MOST_RUNS,
    Experiment,
    GroupedBy,
    JobTest,
    LastMetric,
    MetricLine,
    Result,
    RunGroups,
    Runs,
    Series,
    SweepCancelled,
    SweepPoint,
)
from forge_schema.model.states import Role, Verdict
from forge_schema.read import series as curves
from forge_schema.read.benchmarks import Benchmarks
from forge_schema.read.jobs import PAGE
from forge_schema.read.runs.table import Sorted
from forge_schema.read.runs.table import experiments as read_experiments
from forge_schema.read.runs.table import groups as read_groups
from forge_schema.read.runs.table import runs as read_runs
from forge_schema.service.caller import Verbs


class Findings(Verbs):
    """Of a sweep, the owner is the caller unless an admin names another."""

    def result(self, job_id: int, *, rank: int = 0) -> Result:
        """Return the result of a rank; its fields are None if it has reported nothing."""
        self._visible(job_id)
        return Result.model_validate(self._jobs.result(job_id, rank=rank) or {})

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[str] | None = None,
        after: int = -1,
        count: int = PAGE,
    ) -> list[JobTest]:
        """Return a page of a job's tests after a number."""
        words = None if verdicts is None else [_verdict(word) for word in verdicts]
        self._visible(job_id)
        rows = self._jobs.tests(job_id, attempt=attempt, verdicts=words, after=after, count=count)
        return [JobTest.model_validate(row) for row in rows]

    def series(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        rank: int = 0,
        keys: Sequence[str] | None = None,
        points: int = curves.POINTS,
        x: Literal["step", "time"] = "step",
        since: float | None = None,
        until: float | None = None,
        contains: str | None = None,
    ) -> Series:
        """Return metrics and samples as curves, as `read.series`."""
        wanted = curves.Wanted(attempt, rank, keys, points, x, since, until, contains)
        self._visible(job_id)
        return Series.model_validate(curves.Series(self._database).of(job_id, wanted))

    def metrics(
        self,
        job_id: int,
        *,
        after: tuple[int, int] = (0, -1),
        rank: int = 0,
        attempt: int | None = None,
    ) -> list[MetricLine]:
        """Return a page of a rank's metric lines after a token and a number."""
        self._visible(job_id)
        rows = self._jobs.metrics(job_id, after=after, rank=rank, attempt=attempt)
        return [MetricLine.model_validate(row) for row in rows]

    def last_metrics(
        self, job_id: int, *, rank: int = 0, attempt: int | None = None
    ) -> list[LastMetric]:
        """Return the last value under each key, in the last thousand lines of an attempt.

        By default of the newest attempt that has any.
        """
        self._visible(job_id)
        rows = self._jobs.last_metrics(job_id, rank=rank, attempt=attempt)
        return [LastMetric.model_validate(row) for row in rows]

    def runs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        curve: Sequence[str] = (),
        before: int | None = None,
        count: int = PAGE,
    ) -> Runs:
        """Return jobs that match a filter as runs, as `read.runs`; at most `MOST_RUNS`.

        Raises:
            FilterInvalid: the query is not a filter.
            ColumnUnknown: no run has the column to sort by.
        """
        wanted = parse(query).seen_by(self.caller.owner)
        if not self.caller.sees(owner):
            return Runs(items=[], found=0, more=False)
        most = min(count, MOST_RUNS)
        how = Sorted(sort, descending, (*curve,), count=most, before=before)
        return read_runs(self._database, wanted, owner=self.caller.scope or owner, how=how)

    def run_groups(self, query: str = "", *, by: GroupedBy, owner: str | None = None) -> RunGroups:
        """Return the experiments, sweeps or owners of the newest jobs that match a filter.

        Raises:
            FilterInvalid: the query is not a filter.
        """
        wanted = parse(query).seen_by(self.caller.owner)
        if not self.caller.sees(owner):
            return RunGroups(items=[], found=0, more=False)
        return read_groups(self._database, wanted, by, owner=self.caller.scope or owner)

    def experiments(self, *, owner: str | None = None) -> list[Experiment]:
        """Return the newest experiments of an owner, of all for an admin who names none."""
        if not self.caller.sees(owner):
            return []
        return read_experiments(self._database, self.caller.scope or owner)

    def sweep(self, name: str, *, owner: str | None = None) -> dict[str, int]:
        """Return the number of a sweep's jobs in each state."""
        return self._sweeps(owner).states(name)

    def points(
        self, name: str, *, owner: str | None = None, after: int = 0, count: int = PAGE
    ) -> list[SweepPoint]:
        """Return a page of a sweep's jobs after an id."""
        rows = self._sweeps(owner).points(name, after=after, count=count)
        return [SweepPoint.model_validate(row) for row in rows]

    def cancel_sweep(self, name: str, *, owner: str | None = None) -> SweepCancelled:
        """Cancel the unfinished jobs of a sweep."""
        self.caller.require(Role.SUBMITTER)
        return SweepCancelled.model_validate(self._sweeps(owner).cancel(name))

    def set_parallel(self, name: str, parallel: int, *, owner: str | None = None) -> dict[str, int]:
        """Change how many jobs of a sweep may run at once, as `Benchmarks.set_parallel`."""
        # It is beside the model of a job, which takes a while to import.
        from forge_schema.model.spec import MOST_PARALLEL  # noqa: PLC0415

        self.caller.require(Role.SUBMITTER)
        if not 1 <= parallel <= MOST_PARALLEL:
            raise ForgeError(
                f"parallel {parallel} is not a number from 1 to {MOST_PARALLEL}",
                code="option_invalid",
            )
        return self._sweeps(owner).set_parallel(name, parallel)

    def _sweeps(self, owner: str | None) -> Benchmarks:
        whose = self.caller.acting_for(owner, "read or change the sweeps")
        return Benchmarks(self._database, owner=whose, actor=self.caller.actor)


def _verdict(word: str) -> Verdict:
    try:
        return Verdict(word)
    except ValueError:
        raise ForgeError(
            f"{word!r} is not a verdict",
            hint=f"choose one of {', '.join(Verdict)}",
            code="option_invalid",
        ) from None

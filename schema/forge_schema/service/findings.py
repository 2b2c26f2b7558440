"""The verbs about what jobs found out: results, tests, metrics, runs, and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from forge_schema.job_filter import parse
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Answer, Note, ShownCounts, Word
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
from forge_schema.model.states import Verdict, counts_in_words
from forge_schema.model.stored import BYTES, MOST_KEYS, MOST_POINTS, PAGE, POINTS
from forge_schema.service.caller import Verbs
from forge_schema.service.parameters import (
    AfterId,
    AttemptNumber,
    Count,
    IdInQuery,
    JobId,
    Number,
    Owner,
    Query,
    Rank,
    Token,
)
from forge_schema.service.verb import SUBMITTER, Pages, Sent, verb

if TYPE_CHECKING:
    from forge_schema.read.runs import Benchmarks

JOB, SWEEP = "/queue/jobs/{job_id}", "/queue/sweeps/{name}"
METRIC_PAGES = Pages({"token": "token", "number": "number"}, PAGE, BYTES)
Finite = Annotated[float, Field(allow_inf_nan=False)]
Verdicts = Annotated[Sequence[str] | None, Sent("verdict", kind=list[Verdict] | None)]


class SweepStates(Answer):
    """The number of a sweep's jobs in each state."""

    states: ShownCounts


class Findings(Verbs):
    """Of a sweep, the owner is the caller unless an admin names another."""

    @verb("GET", f"{JOB}/result", errors=(404,))
    def result(self, job_id: JobId, *, rank: Rank = 0) -> Result:
        """Return the result of a job's rank; its fields are null if it has reported nothing."""
        self._visible(job_id)
        return Result.model_validate(self._jobs.result(job_id, rank=rank) or {})

    @verb("GET", f"{JOB}/tests", errors=(404,), pages=Pages({"after": "number"}, most_bytes=BYTES))
    def tests(
        self,
        job_id: JobId,
        *,
        attempt: AttemptNumber | None = None,
        verdicts: Verdicts = None,
        after: Number = -1,
        count: Count = PAGE,
    ) -> list[JobTest]:
        """Return a job's test results after a number, in the order of its report.

        By default those of the newest attempt that has any; fewer than `count` if they are large.
        """
        words = _verdicts(verdicts)
        self._visible(job_id)
        rows = self._jobs.tests(job_id, attempt=attempt, verdicts=words, after=after, count=count)
        return [JobTest.model_validate(row) for row in rows]

    @verb("GET", f"{JOB}/series", errors=(404,))
    def series(
        self,
        job_id: JobId,
        *,
        attempt: AttemptNumber | None = None,
        rank: Rank = 0,
        keys: Annotated[Sequence[Word], Field(max_length=MOST_KEYS)] | None = None,
        points: Annotated[int, Field(ge=1, le=MOST_POINTS)] = POINTS,
        x: Literal["step", "time"] = "step",
        since: Finite | None = None,
        until: Finite | None = None,
        contains: Note | None = None,
    ) -> Series:
        """Return metrics and samples as the curves of a chart.

        By default all keys, metrics over all attempts, and samples of the newest.
        """
        from forge_schema.read import series as curves

        wanted = curves.WantedSeries(attempt, rank, keys, points, x, since, until, contains)
        self._visible(job_id)
        return Series.model_validate(curves.SeriesReader(self._database).of(job_id, wanted))

    @verb("GET", f"{JOB}/metrics", errors=(404,), pages=METRIC_PAGES)
    def metrics(
        self,
        job_id: JobId,
        token: Token = 0,
        number: Number = -1,
        *,
        rank: Rank = 0,
        attempt: AttemptNumber | None = None,
    ) -> list[MetricLine]:
        """Return up to a thousand metric lines of a job's rank after a position, in order.

        Fewer if they are large.
        """
        self._visible(job_id)
        rows = self._jobs.metrics(job_id, after=(token, number), rank=rank, attempt=attempt)
        return [MetricLine.model_validate(row) for row in rows]

    @verb("GET", f"{JOB}/metrics/last", errors=(404,))
    def last_metrics(
        self, job_id: JobId, *, rank: Rank = 0, attempt: AttemptNumber | None = None
    ) -> list[LastMetric]:
        """Return the last value under each key, in the last thousand lines of an attempt.

        By default of the newest attempt that has any.
        """
        self._visible(job_id)
        rows = self._jobs.last_metrics(job_id, rank=rank, attempt=attempt)
        return [LastMetric.model_validate(row) for row in rows]

    @verb("GET", "/queue/runs", errors=(422,), pages=Pages({"before": "job_id"}))
    def runs(
        self,
        query: Query = "",
        *,
        owner: Word | None = None,
        sort: Word | None = None,
        descending: bool = False,
        curve: Sequence[Word] = (),
        before: IdInQuery | None = None,
        count: Count = PAGE,
    ) -> Runs:
        """Return jobs as runs: with what they were given, measured and found.

        The newest come first, or those found are sorted: the newest 10,000 that match, or fewer. A
        column to sort by that none of them has is refused.

        Raises:
            FilterInvalid: the query is not a filter.
            ColumnUnknown: no run has the column to sort by.
        """
        from forge_schema.read import runs

        wanted = parse(query).seen_by(self.caller.owner)
        if not self.caller.sees(owner):
            return Runs(items=[], found=0, more=False)
        most = min(count, MOST_RUNS)
        how = runs.Sorted(sort, descending, (*curve,), count=most, before=before)
        return runs.runs(self._database, wanted, scope=self.caller.within(owner), how=how)

    @verb("GET", "/queue/run-groups")
    def run_groups(
        self, query: Query = "", *, by: GroupedBy, owner: Word | None = None
    ) -> RunGroups:
        """Return the experiments, sweeps, owners or teams of jobs, with their count and sums.

        Grouped are the newest 10,000 jobs that match, or fewer.

        Raises:
            FilterInvalid: the query is not a filter.
        """
        from forge_schema.read import runs

        wanted = parse(query).seen_by(self.caller.owner)
        if not self.caller.sees(owner):
            return RunGroups(items=[], found=0, more=False)
        return runs.groups(self._database, wanted, by, scope=self.caller.within(owner))

    @verb("GET", "/queue/experiments")
    def experiments(self, *, owner: Word | None = None) -> list[Experiment]:
        """Return experiments with their newest job, the newest first."""
        from forge_schema.read import runs

        if not self.caller.sees(owner):
            return []
        return runs.experiments(self._database, self.caller.within(owner))

    @verb("GET", SWEEP, answer=SweepStates, errors=(404,), tag="sweeps")
    def sweep(self, name: Word, *, owner: Owner = None) -> dict[str, int]:
        """Return the number of a sweep's jobs in each state."""
        return counts_in_words(self._sweeps(owner, reading=True).states(name))

    @verb("GET", f"{SWEEP}/points", errors=(404,), pages=Pages({"after": "job_id"}), tag="sweeps")
    def points(
        self, name: Word, *, owner: Owner = None, after: AfterId = 0, count: Count = PAGE
    ) -> list[SweepPoint]:
        """Return the jobs of a sweep after an id, with their parameters and results."""
        rows = self._sweeps(owner, reading=True).points(name, after=after, count=count)
        return [SweepPoint.model_validate(row) for row in rows]

    @verb("POST", f"{SWEEP}/cancel", SUBMITTER, errors=(404,), tag="sweeps")
    def cancel_sweep(self, name: Word, *, owner: Owner = None) -> SweepCancelled:
        """Cancel a sweep's unfinished jobs. Idempotent."""
        return SweepCancelled.model_validate(self._sweeps(owner).cancel(name))

    @verb("PATCH", SWEEP, SUBMITTER, answer=SweepStates, errors=(404, 409), tag="sweeps")
    def set_parallel(
        self, name: Word, parallel: Annotated[int, Sent(kind="Parallel")], *, owner: Owner = None
    ) -> dict[str, int]:
        """Change how many jobs of a sweep may run at once; those that may now keep it. Idempotent.

        The answer has the number of its jobs in each state.
        """
        # It is beside the model of a job, which takes a while to import.
        from forge_schema.model.spec import MOST_PARALLEL

        if not 1 <= parallel <= MOST_PARALLEL:
            raise ForgeError(
                f"parallel {parallel} is not a number from 1 to {MOST_PARALLEL}",
                code="option_invalid",
            )
        return counts_in_words(self._sweeps(owner).set_parallel(name, parallel))

    def _sweeps(self, owner: str | None, *, reading: bool = False) -> Benchmarks:
        from forge_schema.read.runs import Benchmarks

        whose = self.caller.acting_for(owner, "read or change the sweeps", reading=reading)
        return Benchmarks(self._database, owner=whose, actor=self.caller.actor)


def _verdicts(words: Sequence[str] | None) -> list[Verdict] | None:
    try:
        return None if words is None else [Verdict(word) for word in words]
    except ValueError as error:
        raise ForgeError(
            str(error), hint=f"choose one of {', '.join(Verdict)}", code="option_invalid"
        ) from None

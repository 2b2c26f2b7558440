"""What can be asked about what jobs found out: results, tests, metrics, and sweeps."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from forge_schema.model.results import (
    JobTest,
    LastMetric,
    MetricLine,
    Result,
    Series,
    SweepCancelled,
    SweepPoint,
)

PAGE = 1000


class Findings(Protocol):
    """Every method may raise `ClientError`; an owner of None is the caller."""

    def result(self, job_id: int) -> Result:
        """Return what a job found."""

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[str] | None = None,
        after: int = -1,
    ) -> list[JobTest]:
        """Return a page of a job's tests after a number."""

    def series(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        rank: int = 0,
        keys: Sequence[str] | None = None,
        points: int = 500,
    ) -> Series:
        """Return an attempt's metrics and samples as curves of at most `points` points.

        By default of the newest attempt that has any, and under all keys, of which there may be 64
        of each source.
        """

    def metrics(
        self,
        job_id: int,
        *,
        after: tuple[int, int] = (0, -1),
        rank: int = 0,
        attempt: int | None = None,
    ) -> list[MetricLine]:
        """Return a page of a job's metric lines after a token and a number."""

    def last_metrics(
        self, job_id: int, *, rank: int = 0, attempt: int | None = None
    ) -> list[LastMetric]:
        """Return what a job wrote last under each key, in the last thousand lines of an attempt.

        Without an attempt, of the newest one that wrote any.
        """

    def sweep(self, name: str, *, owner: str | None = None) -> dict[str, int]:
        """Return how many jobs of a sweep are in which state."""

    def points(self, name: str, *, owner: str | None = None, after: int = 0) -> list[SweepPoint]:
        """Return a page of the jobs of a sweep after an id."""

    def cancel_sweep(self, name: str, *, owner: str | None = None) -> SweepCancelled:
        """Cancel what has not ended of a sweep."""


def all_tests(
    findings: Findings,
    job_id: int,
    *,
    attempt: int | None = None,
    verdicts: Sequence[str] | None = None,
) -> Iterator[JobTest]:
    """Yield a job's tests, page by page."""
    after = -1
    while page := findings.tests(job_id, attempt=attempt, verdicts=verdicts, after=after):
        yield from page
        if len(page) < PAGE:
            return
        # The pages are of one attempt, also when another one comes to have tests meanwhile.
        after, attempt = page[-1].number, page[-1].attempt


def all_points(findings: Findings, name: str, *, owner: str | None = None) -> Iterator[SweepPoint]:
    """Yield the jobs of a sweep, page by page."""
    after = 0
    while page := findings.points(name, owner=owner, after=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].job_id


def all_metrics(
    findings: Findings, job_id: int, *, rank: int = 0, attempt: int | None = None
) -> Iterator[MetricLine]:
    """Yield the lines that a job wrote to its metrics file, page by page, in order."""
    after = (0, -1)
    while page := findings.metrics(job_id, after=after, rank=rank, attempt=attempt):
        yield from page
        if len(page) < PAGE:
            return
        after = (page[-1].token, page[-1].number)

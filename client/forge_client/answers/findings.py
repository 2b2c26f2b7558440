"""What jobs found out, as the client reads it: results, tests, and sweeps."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from pydantic import Field

from forge_client.answers.records import Record

PAGE = 1000


class Result(Record):
    """The JSON object in which a job said what it found; None where it has said nothing."""

    attempt: int | None = None
    values: dict[str, Any] | None = None
    created_at: datetime | None = None


class JobTest(Record):
    """How one test ended, numbered from 0 in the order of its report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: str
    seconds: float | None = None
    message: str | None = None


class Curve(Record):
    """One curve of a chart: `source` is metric or sample, `gpu` a UUID where it is of a GPU.

    Each point is a run of values: `t` (Unix seconds) and `step` are those of its last one. `count`
    is how many values were read in all. `step` is empty for samples.
    """

    source: str
    key: str
    gpu: str | None = None
    count: int
    t: list[float]
    step: list[float | None]
    min: list[float]
    avg: list[float]
    max: list[float]
    last: list[float]


class Series(Record):
    """What an attempt wrote as metrics and was seen to use; `left_off` curves were too many.

    `until` is its end, or now while it is `running`. There is none where `attempt` is None.
    """

    attempt: int | None = None
    rank: int = 0
    since: datetime | None = None
    until: datetime | None = None
    running: bool = False
    left_off: int = 0
    items: list[Curve] = Field(default_factory=list)


class MetricLine(Record):
    """One line that a job wrote to its metrics file; its place is `token` and `number`."""

    token: int = Field(exclude=True, repr=False)
    attempt: int
    rank: int
    number: int
    at: datetime
    step: float | None = None
    values: dict[str, Any]


class LastMetric(Record):
    """What a job wrote last under a key."""

    key: str
    value: Any
    step: float | None = None
    attempt: int
    at: datetime


class SweepPoint(Record):
    """One job of a sweep; `seconds` is how long the attempt that counts ran."""

    job_id: int
    name: str
    state: str
    reason: str | None = None
    parameters: dict[str, Any]
    result: dict[str, Any] | None = None
    seconds: float | None = None
    gpu_seconds: float | None = None
    energy_j: float | None = None


class SweepCancelled(Record):
    """How many jobs were cancelled at once, and how many their workers are asked to end."""

    cancelled: int
    running: int


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

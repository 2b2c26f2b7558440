"""What jobs have left, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge_schema.model.results import JobTest, MetricLine, RunGroups, SweepPoint
    from forge_schema.service.findings import Findings

    from forge_client.backend import Backend

PAGE = 1000


def everything(backend: Backend, job_id: int) -> dict[str, Any]:
    """Return all that `forge show` says of a job."""
    return {
        "job": backend.job(job_id),
        "metrics": {metric.key: metric.value for metric in backend.findings.last_metrics(job_id)},
        "result": backend.findings.result(job_id).values,
        "artifacts": backend.artifacts(job_id),
        "attempts": backend.attempts(job_id),
        "events": backend.events(job_id),
    }


def all_tests(
    findings: Findings,
    job_id: int,
    *,
    attempt: int | None = None,
    verdicts: Sequence[str] | None = None,
) -> Iterator[JobTest]:
    """Yield a job's tests, page by page."""
    after = -1
    # A page of large ones is shorter than others.
    while page := findings.tests(job_id, attempt=attempt, verdicts=verdicts, after=after):
        yield from page
        # All pages are of one attempt, even if another attempt reports tests meanwhile.
        after, attempt = page[-1].number, page[-1].attempt


def all_points(findings: Findings, name: str, *, owner: str | None = None) -> Iterator[SweepPoint]:
    """Yield the jobs of a sweep, page by page."""
    after = 0
    while page := findings.points(name, owner=owner, after=after):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].job_id


def sweeps(backend: Backend, *, owner: str | None, team: str | None, own: str | None) -> RunGroups:
    """Return the newest sweeps of an owner or of a team; of neither, those of `own`, or yours."""
    from forge_schema.job_filter import quoted  # noqa: PLC0415 - not for `forge show`

    query = f"sweep:* team:{quoted(team)}" if team else "sweep:*"
    whose = owner or (None if team else own or backend.me().owner)
    return backend.findings.run_groups(query, by="sweep", owner=whose)


def all_metrics(
    findings: Findings, job_id: int, *, rank: int = 0, attempt: int | None = None
) -> Iterator[MetricLine]:
    """Yield the lines that a job wrote to its metrics file, page by page, in order."""
    after = (0, -1)
    # As above.
    while page := findings.metrics(job_id, *after, rank=rank, attempt=attempt):
        yield from page
        after = (page[-1].token, page[-1].number)

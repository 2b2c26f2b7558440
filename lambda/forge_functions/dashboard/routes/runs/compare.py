"""Several jobs side by side: what they were given, what came of it, and their curves together."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Self

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.job import JobDetail
from forge_schema.model.reading import LARGEST, link_of
from forge_schema.model.states import PROGRESS
from forge_schema.read.jobs import JobStory

from forge_functions.dashboard.page import page
from forge_functions.dashboard.routes.jobs import telling
from forge_functions.dashboard.routes.runs.code_diff import CodeDiff, code_diff
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/compare")
MOST_JOBS = 12
# What every job has of its own, or what the page shows elsewhere.
OWN = {"name", "git", "bundle_digest", "idempotency_key", "from_checkpoint"}
GIVEN, PACKAGES = "parameters.", "environment."
DIGEST = 64
JobId = Annotated[int, Query(ge=1, le=LARGEST)]


@dataclass(frozen=True)
class Compared:
    """One job, and all that the page tells of it."""

    job: JobDetail
    ran_s: float
    spent: Row
    settings: dict[str, Any]
    result: dict[str, Any]
    metrics: dict[str, Any]

    @classmethod
    def read(cls, shared: Services, who: Visitor, job_id: int) -> Self:
        """Read a job that the visitor may see."""
        service = shared.service(who)
        job = service.job(job_id)
        story = JobStory(shared.database, job_id)
        return cls(
            job,
            story.ran_s(story.runs()),
            story.spent(),
            _settings(story.asked()),
            dict(_flat(service.findings.result(job_id).values or {})),
            {
                last.key: link_of(last.value) or last.value
                for last in service.findings.last_metrics(job_id)
                if last.key not in PROGRESS
            },
        )

    @property
    def label(self) -> str:
        """What the job is called in a chart."""
        return f"{self.job.name} {self.job.job_id}"


@dataclass
class Comparison:
    """The rows of the page's table, one value per job."""

    jobs: list[Compared]

    @cached_property
    def different(self) -> list[tuple[str, list[Any]]]:
        """What differs in their requests."""
        rows = _rows([job.settings for job in self.jobs])
        return [(key, values) for key, values in rows if any(v != values[0] for v in values)]

    @property
    def parameters(self) -> list[tuple[str, list[Any]]]:
        """The different points of a matrix."""
        return [
            (key.removeprefix(GIVEN), vs) for key, vs in self.different if key.startswith(GIVEN)
        ]

    @property
    def packages(self) -> list[tuple[str, list[Any]]]:
        """What differs in where their packages come from; `lock` is the digest of a list."""
        return [
            (key.removeprefix(PACKAGES), [_short(value) for value in values])
            for key, values in self.different
            if key.startswith(PACKAGES)
        ]

    @property
    def settings(self) -> list[tuple[str, list[Any]]]:
        """What else differs."""
        return [row for row in self.different if not row[0].startswith((GIVEN, PACKAGES))]

    @property
    def other_code(self) -> tuple[JobDetail, JobDetail] | None:
        """Two jobs with different code, if there are any."""
        coded = [compared.job for compared in self.jobs if compared.job.bundle_digest]
        others = [job for job in coded if job.bundle_digest != coded[0].bundle_digest]
        return (coded[0], others[0]) if others else None

    @property
    def results(self) -> list[tuple[str, list[Any]]]:
        """What they reported as their results."""
        return _rows([job.result for job in self.jobs])

    @property
    def metrics(self) -> list[tuple[str, list[Any]]]:
        """The last value of each metric."""
        return sorted(_rows([job.metrics for job in self.jobs]), key=lambda row: telling(row[0]))

    @property
    def over(self) -> bool:
        """Whether all have ended."""
        return all(job.job.state.terminal for job in self.jobs)

    @property
    def curves(self) -> list[dict[str, str]]:
        """Where the page's script finds the curves."""
        urls = [f"/jobs/{job.job.job_id}/series" for job in self.jobs]
        return [{"url": url, "label": job.label} for url, job in zip(urls, self.jobs, strict=True)]


@router.get("")
def compare(
    request: Request,
    who: SeesPages,
    shared: Shared,
    job: Annotated[list[JobId], Query(max_length=1000)] = [],  # noqa: B006 never changed
    baseline: JobId | None = None,
) -> Response:
    """Show jobs side by side, the first ones if there are too many; all others as the baseline."""
    chosen = list(dict.fromkeys(job))
    if baseline in chosen:
        chosen.sort(key=lambda job_id: job_id != baseline)
    comparison = Comparison([Compared.read(shared, who, job_id) for job_id in chosen[:MOST_JOBS]])
    left_off = max(len(chosen) - MOST_JOBS, 0)
    return page(
        request, who, "compare.html", comparison=comparison, left_off=left_off, most=MOST_JOBS,
        different_code=partial(_different_code, shared, comparison),
    )  # fmt: skip


def _different_code(shared: Services, comparison: Comparison) -> CodeDiff | None:
    if comparison.other_code is None:
        return None
    first, second = (job.bundle_digest or "" for job in comparison.other_code)
    return code_diff(shared.store, first, second)


def _settings(asked: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_flat({**asked, "command": shlex.join(asked["command"])}))


def _flat(values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested objects, as `optimizer.lr`."""
    for key, value in values.items():
        if not within and key in OWN:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value


def _short(value: object) -> object:
    return value[:8] if isinstance(value, str) and len(value) == DIGEST else value


def _rows(columns: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    keys = dict.fromkeys(key for column in columns for key in column)
    return [(key, [column.get(key) for column in columns]) for key in keys]

"""Reading one job: how it stands, what happened to it, and what it wrote."""

from datetime import datetime
from typing import Annotated, TypedDict

from fastapi import APIRouter, Query, Request
from forge_schema.database.pool import Row
from forge_schema.model.fields import INTEGER, LARGEST, SMALLINT, Moment
from forge_schema.model.job import Attempt, Event, JobDetail
from forge_schema.model.results import JobTest, LastMetric, MetricLine, Result, Series
from forge_schema.model.states import Verdict
from forge_schema.model.stored import Artifact, Checkpoint, LogChunk
from forge_schema.read.jobs import PAGE, Jobs
from forge_schema.read.series import Series as Reads
from forge_schema.read.series import Wanted
from pydantic import Field

from forge_functions.auth.caller import Viewer
from forge_functions.auth.job import OwnJob
from forge_functions.errors import problems
from forge_functions.items import Items, Rows
from forge_functions.middleware.bodies import Body
from forge_functions.services import Services, Shared

router = APIRouter(
    prefix="/api/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404)
)


class Chosen(TypedDict):
    """Which chunks of a log."""

    attempt: int | None
    rank: int | None
    since: datetime | None


class After(Body):
    """The place of the last chunk read; without it, the beginning."""

    token: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    number: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None
    of_rank: Annotated[int, Field(ge=0, le=SMALLINT)] | None = None
    since: Moment | None = None
    last: bool = False


class WhichMetrics(Body):
    """Which metric lines of a job: of one rank, after the place of the last one read."""

    token: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    number: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None


class WhoseMetrics(Body):
    """Whose last metrics: by default those of the newest attempt that has any."""

    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None


class WhichTests(Body):
    """Which tests of a job: by default all those of the newest attempt that has any."""

    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None
    verdict: list[Verdict] | None = None
    after: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


# A query is frozen, which mypy does not see.
class WhichSeries(Body, Wanted):  # type: ignore[misc]
    """Which series: by default those of the newest attempt that has any, under all keys."""


@router.get("", response_model=JobDetail)
def status(_who: Viewer, job: OwnJob) -> Row:
    """Tell how a job stands, and what was asked for."""
    return job


@router.get("/attempts", response_model=Items[Attempt])
def attempts(_who: Viewer, job: OwnJob, shared: Shared) -> Rows:
    """List a job's finished attempts, in order."""
    return {"items": Jobs(shared.database).attempts(job["job_id"])}


@router.get("/events", response_model=Items[Event])
def events(_who: Viewer, job: OwnJob, shared: Shared) -> Rows:
    """List what happened to a job, the oldest first."""
    return {"items": Jobs(shared.database).events(job["job_id"])}


@router.get("/logs", response_model=Items[LogChunk])
def logs(
    _who: Viewer, job: OwnJob, shared: Shared, request: Request, after: Annotated[After, Query()]
) -> Rows:
    """List a hundred chunks of a job's output after a place, in reading order; none at the end.

    With `last`, those before the place, the last one first.
    """
    jobs, place = Jobs(shared.database), (after.token, after.rank, after.number)
    chosen: Chosen = {"attempt": after.attempt, "rank": after.of_rank, "since": after.since}
    if after.last:
        rows = jobs.log_chunks_before(job["job_id"], before=place, **chosen)
    else:
        rows = jobs.log_chunks(job["job_id"], after=place, **chosen)
    return {"items": _with_urls(shared, request, rows)}


@router.get("/metrics", response_model=Items[MetricLine])
def metrics(
    _who: Viewer, job: OwnJob, shared: Shared, which: Annotated[WhichMetrics, Query()]
) -> Rows:
    """List a thousand metric lines of a job's rank after a place, in the order written."""
    place = (which.token, which.number)
    rows = Jobs(shared.database).metrics(
        job["job_id"], after=place, rank=which.rank, attempt=which.attempt
    )
    return {"items": rows}


@router.get("/metrics/last", response_model=Items[LastMetric])
def last_metrics(
    _who: Viewer, job: OwnJob, shared: Shared, whose: Annotated[WhoseMetrics, Query()]
) -> Rows:
    """List what a job's rank wrote last under each key, in the last thousand lines."""
    rows = Jobs(shared.database).last_metrics(job["job_id"], rank=whose.rank, attempt=whose.attempt)
    return {"items": rows}


@router.get("/tests", response_model=Items[JobTest])
def tests(_who: Viewer, job: OwnJob, shared: Shared, which: Annotated[WhichTests, Query()]) -> Rows:
    """List how a job's tests ended, in the order of its report."""
    rows = Jobs(shared.database).tests(
        job["job_id"],
        attempt=which.attempt,
        verdicts=which.verdict,
        after=which.after,
        count=which.count,
    )
    return {"items": rows}


@router.get("/series", response_model=Series)
def series(
    _who: Viewer, job: OwnJob, shared: Shared, which: Annotated[WhichSeries, Query()]
) -> Row:
    """Return an attempt's metrics and samples as the curves of a chart."""
    return Reads(shared.database).of(job["job_id"], which)


@router.get("/result", response_model=Result)
def result(_who: Viewer, job: OwnJob, shared: Shared) -> Row:
    """Tell what a job found; null where it has said nothing so far."""
    said = Jobs(shared.database).result(job["job_id"])
    return said or {"attempt": None, "values": None, "created_at": None}


@router.get("/checkpoints", response_model=Items[Checkpoint])
def checkpoints(_who: Viewer, job: OwnJob, shared: Shared) -> Rows:
    """List a job's complete checkpoints, the newest first."""
    return {"items": Jobs(shared.database).checkpoints(job["job_id"])}


@router.get("/artifacts", response_model=Items[Artifact])
def artifacts(_who: Viewer, job: OwnJob, shared: Shared, request: Request) -> Rows:
    """List the files that a job left, ordered by path."""
    rows = Jobs(shared.database).artifacts(job["job_id"])
    return {"items": _with_urls(shared, request, rows)}


def _with_urls(shared: Services, request: Request, rows: list[Row]) -> list[Row]:
    signer = shared.signer(str(request.base_url))
    return [{**row, "url": signer.get(row["key"]).url} for row in rows]

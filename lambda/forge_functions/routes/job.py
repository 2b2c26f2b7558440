"""Reading one job: how it stands, what happened to it, and what it wrote."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from forge_schema.database import Row
from forge_schema.jobs import PAGE, Jobs
from forge_schema.states import Verdict
from forge_schema.wire_fields import INTEGER, LARGEST
from pydantic import Field

from forge_functions.auth.caller import Viewer
from forge_functions.auth.job import OwnJob
from forge_functions.bodies import Body
from forge_functions.errors import problems
from forge_functions.found import JobTest, Result
from forge_functions.records import (
    Artifact,
    Attempt,
    Checkpoint,
    Event,
    Items,
    JobDetail,
    LogChunk,
    Rows,
)
from forge_functions.services import Services, Shared

router = APIRouter(
    prefix="/api/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404)
)
LARGEST_SMALL = 2**15 - 1


class After(Body):
    """The place of the last chunk read; without it, the beginning."""

    token: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    rank: Annotated[int, Field(ge=0, le=LARGEST_SMALL)] = 0
    number: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    attempt: Annotated[int, Field(ge=1, le=LARGEST_SMALL)] | None = None


class WhichTests(Body):
    """Which tests of a job: by default all those of the newest attempt that has any."""

    attempt: Annotated[int, Field(ge=1, le=LARGEST_SMALL)] | None = None
    verdict: list[Verdict] | None = None
    after: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


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
    """List a hundred chunks of a job's output after a place, in reading order; none at the end."""
    place = (after.token, after.rank, after.number)
    rows = Jobs(shared.database).log_chunks(job["job_id"], after=place, attempt=after.attempt)
    return {"items": _with_urls(shared, request, rows)}


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


@router.get("/result", response_model=Result)
def result(_who: Viewer, job: OwnJob, shared: Shared) -> Row:
    """Tell what a job found; null where it has said nothing so far."""
    found = Jobs(shared.database).result(job["job_id"])
    return found or {"attempt": None, "values": None, "created_at": None}


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

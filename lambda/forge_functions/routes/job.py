"""Reading one job: its status, its events and its output."""

from datetime import datetime
from typing import Annotated, TypedDict, TypeVar

from fastapi import APIRouter, Query, Request
from forge_schema.model.fields import INTEGER, LARGEST, SMALLINT, Digest, Moment, Path
from forge_schema.model.job import Attempt, Event, JobDetail
from forge_schema.model.results import JobTest, LastMetric, MetricLine, Result, Series
from forge_schema.model.states import Verdict
from forge_schema.model.stored import (
    FILES,
    Artifact,
    ArtifactChunk,
    Checkpoint,
    LogChunk,
    SignedUrl,
)
from forge_schema.read.jobs import BYTES, CHUNKS, PAGE
from forge_schema.read.series import Wanted
from pydantic import Field, JsonValue

from forge_functions.auth.roles import AsViewer, JobInPath
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import Body
from forge_functions.services import Services, Shared

router = APIRouter(
    prefix="/api/v1/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404)
)


POSITION = ("token", "rank", "number")


class Chosen(TypedDict):
    """Which chunks of a log."""

    attempt: int | None
    rank: int | None
    since: datetime | None


class After(Body):
    """The position of the last chunk read; by default, the beginning."""

    token: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    number: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None
    of_rank: Annotated[int, Field(ge=0, le=SMALLINT)] | None = None
    since: Moment | None = None
    last: bool = False


class WhichMetrics(Body):
    """Which metric lines of a job: of one rank, after the last one read."""

    token: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    number: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None


class WhoseMetrics(Body):
    """Which last metrics: by default those of the newest attempt that has any."""

    rank: Annotated[int, Field(ge=0, le=SMALLINT)] = 0
    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None


class WhichTests(Body):
    """Which tests of a job: by default all those of the newest attempt that has any."""

    attempt: Annotated[int, Field(ge=1, le=SMALLINT)] | None = None
    verdict: list[Verdict] | None = None
    after: Annotated[int, Field(ge=-1, le=INTEGER)] = -1
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


class WhichFiles(Body):
    """Which output files of a job: those after a path, in order."""

    after: Path | None = None


class WhichChunks(Body):
    """Which chunks of which output file: those after an offset."""

    file: Path
    after: Annotated[int, Field(ge=-1, le=LARGEST)] = -1


# A query is frozen, which mypy does not see.
class WhichSeries(Body, Wanted):  # type: ignore[misc]
    """Which series: by default all keys, metrics over all attempts, samples of the newest."""


@router.get("")
def status(service: AsViewer, job_id: JobInPath) -> JobDetail:
    """Return a job's status and request."""
    return service.job(job_id)


@router.get("/attempts")
def attempts(service: AsViewer, job_id: JobInPath) -> Items[Attempt]:
    """List a job's finished attempts, in order."""
    return Items(items=service.attempts(job_id))


@router.get("/events")
def events(service: AsViewer, job_id: JobInPath) -> Items[Event]:
    """List a job's events, oldest first."""
    return Items(items=service.events(job_id))


@router.get("/logs")
def logs(
    service: AsViewer,
    job_id: JobInPath,
    shared: Shared,
    request: Request,
    after: Annotated[After, Query()],
) -> Items[LogChunk]:
    """List up to a hundred chunks of a job's output after a position, in reading order.

    With `last`, those before the position, last one first.
    """
    place = (after.token, after.rank, after.number)
    chosen: Chosen = {"attempt": after.attempt, "rank": after.of_rank, "since": after.since}
    if after.last:
        chunks = service.log_chunks_before(job_id, before=place, **chosen)
    else:
        chunks = service.log_chunks(job_id, after=place, **chosen)
    found = _with_urls(shared, request, chunks)
    return Items.page(
        found, request, CHUNKS, lambda last: dict(zip(POSITION, last.place, strict=True))
    )


@router.get("/metrics")
def metrics(
    service: AsViewer,
    job_id: JobInPath,
    which: Annotated[WhichMetrics, Query()],
    request: Request,
) -> Items[MetricLine]:
    """List up to a thousand metric lines of a job's rank after a position, in order.

    Fewer if they are large.
    """
    place = (which.token, which.number)
    lines = service.findings.metrics(job_id, after=place, rank=which.rank, attempt=which.attempt)
    return Items.page(
        lines,
        request,
        PAGE,
        lambda last: {"token": last.token, "number": last.number},
        most_bytes=BYTES,
    )


@router.get("/metrics/last")
def last_metrics(
    service: AsViewer, job_id: JobInPath, whose: Annotated[WhoseMetrics, Query()]
) -> Items[LastMetric]:
    """List the last value of each metric of a job's rank, in the last thousand lines."""
    found = service.findings.last_metrics(job_id, rank=whose.rank, attempt=whose.attempt)
    return Items(items=found)


@router.get("/tests")
def tests(
    service: AsViewer,
    job_id: JobInPath,
    which: Annotated[WhichTests, Query()],
    request: Request,
) -> Items[JobTest]:
    """List a job's test results, in the order of its report.

    Fewer than `count` if they are large.
    """
    found = service.findings.tests(
        job_id,
        attempt=which.attempt,
        verdicts=which.verdict,
        after=which.after,
        count=which.count,
    )
    return Items.page(
        found, request, which.count, lambda last: {"after": last.number}, most_bytes=BYTES
    )


@router.get("/series")
def series(service: AsViewer, job_id: JobInPath, which: Annotated[WhichSeries, Query()]) -> Series:
    """Return metrics and samples as the curves of a chart."""
    return service.findings.series(job_id, **vars(which))


@router.get("/result")
def result(
    service: AsViewer, job_id: JobInPath, rank: Annotated[int, Query(ge=0, le=SMALLINT)] = 0
) -> Result:
    """Return the result of a job's rank; null if it has reported none."""
    return service.findings.result(job_id, rank=rank)


@router.get("/checkpoints")
def checkpoints(service: AsViewer, job_id: JobInPath) -> Items[Checkpoint]:
    """List a job's complete checkpoints, newest first."""
    return Items(items=service.checkpoints(job_id))


@router.get("/artifacts")
def artifacts(
    service: AsViewer,
    job_id: JobInPath,
    shared: Shared,
    request: Request,
    which: Annotated[WhichFiles, Query()],
) -> Items[Artifact]:
    """List up to 250 of a job's output files after a path, ordered by path."""
    found = service.artifacts(job_id, after=which.after, count=FILES)
    files = _with_urls(shared, request, found)
    return Items.page(files, request, FILES, lambda last: {"after": last.path})


@router.get("/code/{digest}")
def code(
    service: AsViewer, job_id: JobInPath, digest: Digest, shared: Shared, request: Request
) -> SignedUrl:
    """Return a URL of an object of the job's code: its bundle, a segment of it, or its diff."""
    return shared.signer(str(request.base_url)).get(service.code_key(job_id, digest))


@router.get("/request")
def asked(service: AsViewer, job_id: JobInPath) -> dict[str, JsonValue]:
    """Return the fields that submit the job again, without its sweep and its dependencies."""
    return service.request(job_id)


@router.get("/artifacts/chunks")
def artifact_chunks(
    service: AsViewer,
    job_id: JobInPath,
    shared: Shared,
    request: Request,
    which: Annotated[WhichChunks, Query()],
) -> Items[ArtifactChunk]:
    """List up to a hundred chunks of an output file; none if it is one object."""
    chunks = service.artifact_chunks(job_id, which.file, after=which.after)
    found = _with_urls(shared, request, chunks)
    return Items.page(found, request, CHUNKS, lambda last: {"after": last.offset})


Object = TypeVar("Object", LogChunk, Artifact, ArtifactChunk)


def _with_urls(shared: Services, request: Request, found: list[Object]) -> list[Object]:
    url_of = shared.reading(str(request.base_url))
    return [one.model_copy(update={"url": url_of(one.key)}) for one in found]

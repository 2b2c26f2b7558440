"""What a job stored: the beginning of a file, and the files of a checkpoint."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from forge_schema.database.pool import Row
from forge_schema.model.bundles import destination, stays_inside
from forge_schema.model.fields import Text
from forge_schema.model.reading import INTEGER, SMALLINT
from forge_schema.model.stored import in_chunks
from forge_schema.read.jobs import JobStory
from forge_schema.storage.manifest import Manifest
from forge_schema.storage.store import small
from pydantic import Field

from forge_functions.dashboard.page import page
from forge_functions.dashboard.preview import WHOLE_BYTES, content, head, image_type, previewed
from forge_functions.dashboard.rendering import Busy
from forge_functions.dashboard.session import PageJob, SeesPages
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/jobs/{job_id}")
FilePath = Annotated[Text, Query(max_length=1024)]
Attempt = Annotated[int, Field(ge=1, le=SMALLINT)]
Number = Annotated[int, Field(ge=0, le=INTEGER)]
# A browser that opens the image alone runs nothing either.
IMAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Content-Disposition": "inline",
    "Cache-Control": "private, max-age=3600",
}
MOST_FILES = 1000
# What tells the kind of an image.
TYPE_BYTES = 64
MOST_LINKS = 8


@router.get("/file")
def file(
    request: Request, who: SeesPages, job: PageJob, shared: Shared, path: FilePath
) -> Response:
    """Show the beginning of an output file."""
    stored = _artifact(shared, job.job_id, path)
    try:
        shown = previewed(shared.store, stored)
    except Busy as error:
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE, "busy", "other files are being shown",
            hint="reload the page in a moment, or save the file", headers={"Retry-After": "5"},
        ) from error  # fmt: skip
    return page(request, who, "file.html", job=job, file=stored, shown=shown)


@router.get("/artifact")
def artifact(
    request: Request, _who: SeesPages, job: PageJob, shared: Shared, path: FilePath
) -> Response:
    """Redirect to an output file of the job."""
    url = shared.reading(str(request.base_url))(_artifact(shared, job.job_id, path)["key"])
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": url})


@router.get("/image")
def image(_who: SeesPages, job: PageJob, shared: Shared, path: FilePath) -> Response:
    """Return an output file that is an image, with the media type that its bytes say."""
    stored = _artifact(shared, job.job_id, path)
    fits = stored["bytes"] <= WHOLE_BYTES
    kind = image_type(head(shared.store, stored, TYPE_BYTES)) if fits else None
    if kind is None:
        raise Refused(
            HTTPStatus.NOT_FOUND, "not_found", "this is no image that can be shown", hint="save it"
        )
    length = {"Content-Length": str(stored["bytes"])}
    pieces = content(shared.store, stored)
    return StreamingResponse(pieces, media_type=kind, headers={**IMAGE_HEADERS, **length})


@router.get("/checkpoint")
def checkpoint(  # noqa: PLR0917 - the page's parameters
    request: Request, who: SeesPages, job: PageJob, shared: Shared, attempt: Attempt, number: Number
) -> Response:
    """List the files of a checkpoint."""
    keys = JobStory(shared.database, job.job_id).checkpoint(attempt, number)
    if not keys:
        raise Refused(
            HTTPStatus.NOT_FOUND, "not_found", "this job has no such checkpoint",
            hint="its page lists the newest; older ones are thinned out",
        )  # fmt: skip
    parts = [
        (row["rank"], Manifest.loaded(small(shared.store, row["key"]), job_id=job.job_id).files)
        for row in keys
    ]
    files = [
        (rank, entry) for rank, entries in parts for entry in sorted(entries, key=lambda e: e.path)
    ]
    return page(
        request, who, "checkpoint.html", job=job, name=f"{attempt}.{number}",
        files=files[:MOST_FILES], more=max(len(files) - MOST_FILES, 0),
        size=sum(entry.size for _, entry in files), several=len(parts) > 1,
    )  # fmt: skip


def _destination(link: Row) -> str:
    """Return the path of the artifact that a link leads to; "" if it leads out of the output."""
    inside = stays_inside(link["path"], link["target"])
    return destination(link["path"], link["target"]) if inside else ""


def _artifact(shared: Services, job_id: int, path: str) -> Row:
    story = JobStory(shared.database, job_id)
    stored = story.artifact(path)
    for _ in range(MOST_LINKS):
        if stored is None or stored["target"] is None:
            break
        stored = story.artifact(_destination(stored))
    if stored is None or stored["target"] is not None:
        raise Refused(
            HTTPStatus.NOT_FOUND, "not_found", "this job has no such file",
            hint="its page lists them",
        )  # fmt: skip
    if in_chunks(stored["key"]) and not shared.settings.long_poll_s:
        raise Refused(
            HTTPStatus.CONFLICT, "artifact_in_chunks",
            "this server cannot put a file of this size together",
            hint=f"forge artifacts {job_id} --to FOLDER",
        )  # fmt: skip
    return stored

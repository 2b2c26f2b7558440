"""Data that a job's page fetches: pieces of the log, and the values of its charts."""

import base64
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from forge_schema.read.jobs import Jobs
from forge_schema.read.series import WantedSeries
from pydantic import BaseModel, Field

from forge_functions.bodies import RequestBody
from forge_functions.dashboard.assets import packed
from forge_functions.dashboard.log_pieces import LARGEST_RANK, LogPieces, LogPlace, Pieces
from forge_functions.dashboard.session import PageJob, SeesPages
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/jobs/{job_id}")
Rank = Annotated[int, Field(ge=0, le=LARGEST_RANK)]
Attempt = Annotated[int, Field(ge=1, le=LARGEST_RANK)] | None
Place = Annotated[str, Field(max_length=60)] | None


class Where(BaseModel):
    """A part of a log: after a position, before one, or its end."""

    after: Place = None
    before: Place = None
    rank: Rank = 0
    attempt: Attempt = None


@router.get("/log")
def log(
    request: Request, job: PageJob, shared: Shared, where: Annotated[Where, Query()]
) -> Response:
    """Return the end of a job's output, or the output after or before a position."""
    # The job's state was read first: an ended job's output was complete by then.
    reader = LogPieces(
        Jobs(shared.database), shared.store, job.job_id, rank=where.rank, attempt=where.attempt
    )
    if where.after is not None:
        writing = job.attempt if job.state == "running" else None
        got = reader.after(LogPlace.parse(where.after), writing=writing)
    elif where.before is not None:
        got = reader.before(LogPlace.parse(where.before))
    else:
        got = reader.tail()
    said = {**_as_json(got), "state": job.state, "over": job.state.terminal}
    return packed(request, JSONResponse(said))


@router.get("/log.txt")
def download(job: PageJob, shared: Shared, where: Annotated[Where, Query()]) -> Response:
    """Return a job's whole output so far, as a file."""
    if not shared.settings.long_poll_s:
        raise Refused(
            HTTPStatus.CONFLICT,
            "log_not_sent",
            "this server cannot send a file of any size",
            hint=f"forge logs {job.job_id} > job-{job.job_id}.txt",
        )
    reader = LogPieces(
        Jobs(shared.database), shared.store, job.job_id, rank=where.rank, attempt=where.attempt
    )
    named = {"Content-Disposition": f'attachment; filename="job-{job.job_id}.txt"'}
    return StreamingResponse(reader.whole(), media_type="text/plain; charset=utf-8", headers=named)


# A query is frozen, which mypy does not see.
class Curves(RequestBody, WantedSeries):  # type: ignore[misc]
    """Which curves, and the maximum number of points of each."""


@router.get("/series")
def series(
    request: Request,
    who: SeesPages,
    job: PageJob,
    shared: Shared,
    which: Annotated[Curves, Query()],
) -> Response:
    """Return an attempt's metrics and resource samples as curves."""
    found = shared.service(who).findings.series(job.job_id, **vars(which))
    return packed(request, Response(found.model_dump_json(), media_type="application/json"))


def _as_json(got: Pieces) -> dict[str, Any]:
    pieces = [
        {
            "attempt": piece.attempt,
            "token": str(piece.token),
            "missing": piece.missing,
            # As bytes, since a piece may end within a character.
            "data": base64.b64encode(piece.data).decode(),
        }
        for piece in got.pieces
    ]
    places = {"first": str(got.first), "last": str(got.last)}
    return {"pieces": pieces, **places, "earlier": got.earlier, "more": got.more}

"""What a job's page fetches as it goes: the log by pieces, and the numbers of its charts."""

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Query
from forge_schema.model.states import TERMINAL_STATES
from forge_schema.read.jobs import Jobs
from forge_schema.read.series import POINTS, Series, Wanted
from pydantic import BaseModel, Field

from forge_functions.dashboard.log.pieces import LogPieces, Pieces
from forge_functions.dashboard.log.place import LARGEST_RANK, LogPlace
from forge_functions.dashboard.visit.own_job import PageJob
from forge_functions.services import Shared

router = APIRouter(prefix="/jobs/{job_id}")
Rank = Annotated[int, Field(ge=0, le=LARGEST_RANK)]
Attempt = Annotated[int, Field(ge=1, le=LARGEST_RANK)] | None
Place = Annotated[str, Field(max_length=60)] | None


class Where(BaseModel):
    """Which part of a log: after a place, before one, or its end."""

    after: Place = None
    before: Place = None
    rank: Rank = 0
    attempt: Attempt = None


@router.get("/log")
def log(job: PageJob, shared: Shared, where: Annotated[Where, Query()]) -> dict[str, Any]:
    """Tell the last of a job's output; or what came after a place, or what was before one."""
    # The job was looked at first: what an ended one wrote was there before its end was.
    reader = LogPieces(
        Jobs(shared.database),
        shared.store,
        job.job_id,
        rank=where.rank,
        attempt=where.attempt,
    )
    if where.after is not None:
        writing = job.attempt if job.state == "running" else None
        got = reader.after(LogPlace.parse(where.after), writing=writing)
    elif where.before is not None:
        got = reader.before(LogPlace.parse(where.before))
    else:
        got = reader.tail()
    return {**_told(got), "state": job.state, "over": job.state in TERMINAL_STATES}


class Curves(BaseModel):
    """Which curves, and of how many points each at most."""

    rank: Rank = 0
    attempt: Attempt = None
    points: Annotated[int, Field(ge=10, le=POINTS)] = 300


@router.get("/series")
def series(job: PageJob, shared: Shared, which: Annotated[Curves, Query()]) -> dict[str, Any]:
    """Tell what an attempt wrote as metrics and what it used, as curves."""
    wanted = Wanted(attempt=which.attempt, rank=which.rank, points=which.points)
    return Series(shared.database).of(job.job_id, wanted)


def _told(got: Pieces) -> dict[str, Any]:
    pieces = [
        {
            "attempt": piece.attempt,
            "token": str(piece.token),
            "missing": piece.missing,
            # Bytes, for a piece may end within a character.
            "data": base64.b64encode(piece.data).decode(),
        }
        for piece in got.pieces
    ]
    places = {"first": str(got.first), "last": str(got.last)}
    return {"pieces": pieces, **places, "earlier": got.earlier, "more": got.more}

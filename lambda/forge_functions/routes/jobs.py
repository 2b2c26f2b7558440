"""Lists of jobs: a caller sees the own owner's, an admin everybody's."""

from typing import Annotated

from fastapi import Query
from forge_schema.model.fields import Id, Word
from forge_schema.model.job import JobStatus
from forge_schema.model.states import State
from forge_schema.read.jobs import PAGE, Jobs
from pydantic import Field

from forge_functions.auth.caller import Viewer
from forge_functions.errors import problems
from forge_functions.items import Items, Rows
from forge_functions.middleware.bodies import Body, IdInPath
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/queue", tags=["jobs"], responses=problems(401, 403))


class Wanted(Body):
    """Which jobs to list: the newest, before a job's id."""

    owner: Word | None = None
    state: list[State] | None = None
    before: IdInPath | None = None
    count: Annotated[int, Field(ge=1, le=PAGE)] = 50


class Ids(Body):
    """Some jobs."""

    job_ids: Annotated[list[Id], Field(max_length=PAGE, examples=[[1, 2]])]


@router.get("/jobs", response_model=Items[JobStatus])
def list_jobs(who: Viewer, shared: Shared, wanted: Annotated[Wanted, Query()]) -> Rows:
    """List jobs, the newest first; to anybody but an admin, other owners have none."""
    if not who.admin and wanted.owner not in {None, who.owner}:
        return {"items": []}
    rows = Jobs(shared.database).jobs(
        owner=wanted.owner if who.admin else who.owner,
        states=wanted.state,
        before=wanted.before,
        count=wanted.count,
    )
    return {"items": rows}


@router.post("/statuses", response_model=Items[JobStatus])
def statuses(who: Viewer, shared: Shared, wanted: Ids) -> Rows:
    """Tell how some jobs stand; one that is not there is left out."""
    owner = None if who.admin else who.owner
    return {"items": Jobs(shared.database).statuses(wanted.job_ids, owner=owner)}

"""Sweeps: the jobs of one benchmark, by its name."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from forge_schema.model.fields import LARGEST, Word
from forge_schema.model.results import SweepCancelled, SweepPoint
from forge_schema.model.spec import Parallel
from forge_schema.model.states import State
from forge_schema.read.jobs import PAGE
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsSubmitter, AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import Body

router = APIRouter(
    prefix="/api/v1/queue/sweeps", tags=["sweeps"], responses=problems(401, 403, 404)
)
SweepName = Annotated[Word, Path()]
Owner = Annotated[Word | None, Query(description="the owner; only an admin may name another")]


class WhichPoints(Body):
    """Which jobs of a sweep: after a job's id."""

    owner: Word | None = None
    after: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


class SweepChanges(Body):
    """What to change of a sweep."""

    parallel: Parallel


class SweepStates(BaseModel):
    """The number of a sweep's jobs in each state."""

    states: dict[State, int]


@router.get("/{name}/points")
def points(
    service: AsViewer,
    name: SweepName,
    which: Annotated[WhichPoints, Query()],
    request: Request,
) -> Items[SweepPoint]:
    """List the jobs of a sweep with their parameters and results."""
    found = service.findings.points(name, owner=which.owner, after=which.after, count=which.count)
    return Items.page(found, request, which.count, lambda last: {"after": last.job_id})


@router.patch("/{name}", responses=problems(409))
def change(
    service: AsSubmitter, name: SweepName, changes: SweepChanges, owner: Owner = None
) -> SweepStates:
    """Change how many jobs of a sweep may run at once; those that may now keep it. Idempotent."""
    states = service.findings.set_parallel(name, changes.parallel, owner=owner)
    return SweepStates.model_validate({"states": states})


@router.post("/{name}/cancel")
def cancel(service: AsSubmitter, name: SweepName, owner: Owner = None) -> SweepCancelled:
    """Cancel a sweep's unfinished jobs. Idempotent."""
    return service.findings.cancel_sweep(name, owner=owner)


@router.get("/{name}")
def sweep(service: AsViewer, name: SweepName, owner: Owner = None) -> SweepStates:
    """Return the number of a sweep's jobs in each state."""
    return SweepStates.model_validate({"states": service.findings.sweep(name, owner=owner)})

"""Benchmarks: the jobs of one sweep, by its name."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from forge_schema.model.fields import LARGEST, Word
from forge_schema.model.results import SweepCancelled, SweepPoint
from forge_schema.model.states import State
from forge_schema.read.benchmarks import Benchmarks
from forge_schema.read.jobs import PAGE
from pydantic import BaseModel, Field

from forge_functions.auth.caller import Caller, Submitter, Viewer, forbidden
from forge_functions.errors import problems
from forge_functions.items import Items, Rows
from forge_functions.middleware.bodies import Body
from forge_functions.services import Services, Shared

router = APIRouter(prefix="/api/queue/sweeps", tags=["sweeps"], responses=problems(401, 403, 404))
SweepName = Annotated[Word, Path()]
Owner = Annotated[Word | None, Query(description="whose; anybody's for an admin")]


class WhichPoints(Body):
    """Which jobs of a sweep: after a job's id."""

    owner: Word | None = None
    after: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


class SweepStates(BaseModel):
    """How many jobs of a sweep are in which state."""

    states: dict[State, int]


@router.get("/{name}/points", response_model=Items[SweepPoint])
def points(
    who: Viewer, shared: Shared, name: SweepName, which: Annotated[WhichPoints, Query()]
) -> Rows:
    """List the jobs of a sweep: what each was given, and what it found."""
    sweeps = _sweeps(shared, who, which.owner)
    return {"items": sweeps.points(name, after=which.after, count=which.count)}


@router.post("/{name}/cancel")
def cancel(who: Submitter, shared: Shared, name: SweepName, owner: Owner = None) -> SweepCancelled:
    """Cancel what has not ended of a sweep. A repeat changes nothing."""
    return SweepCancelled.model_validate(_sweeps(shared, who, owner).cancel(name))


@router.get("/{name}")
def sweep(who: Viewer, shared: Shared, name: SweepName, owner: Owner = None) -> SweepStates:
    """Tell how many jobs of a sweep are in which state."""
    return SweepStates.model_validate({"states": _sweeps(shared, who, owner).states(name)})


def _sweeps(shared: Services, who: Caller, owner: str | None) -> Benchmarks:
    if owner not in {None, who.owner} and not who.admin:
        raise forbidden("only an admin reads and cancels the sweeps of another owner")
    return Benchmarks(shared.database, owner=owner or who.owner, actor=who.actor)

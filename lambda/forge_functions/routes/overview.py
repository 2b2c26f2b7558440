"""The overview: is all well, what waits, what runs, how much is done."""

from typing import Annotated

from fastapi import APIRouter, Query
from forge_schema.database.pool import Row
from forge_schema.model.overview import Overview
from forge_schema.read import overview as reads

from forge_functions.auth.caller import Viewer
from forge_functions.errors import problems
from forge_functions.services import Shared

router = APIRouter(prefix="/api/overview", tags=["fleet"], responses=problems(401, 403))
Count = Annotated[int, Query(ge=0, le=reads.MOST)]


@router.get("", response_model=Overview)
def overview(who: Viewer, shared: Shared, jobs: Count = 0, workers: Count = 0) -> Row:
    """Tell how everything stands; anybody but an admin hears of the own owner's jobs alone."""
    owner = None if who.admin else who.owner
    return reads.Overview(shared.database).now(owner=owner, jobs=jobs, workers=workers)

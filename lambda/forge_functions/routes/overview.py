"""The overview of jobs, workers and sweeper."""

from typing import Annotated

from fastapi import APIRouter, Query
from forge_schema.model.overview import Overview
from forge_schema.read.overview import MOST

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems

router = APIRouter(prefix="/api/v1/overview", tags=["fleet"], responses=problems(401, 403))
Count = Annotated[int, Query(ge=0, le=MOST)]


@router.get("")
def overview(service: AsViewer, jobs: Count = 0, workers: Count = 0) -> Overview:
    """Return the overview. Non-admins see only their own jobs in it."""
    return service.overview(jobs=jobs, workers=workers)

"""The fleet: workers, readable by every caller."""

from typing import Annotated

from fastapi import APIRouter
from forge_schema.model.worker import WorkerInfo
from pydantic import Field

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items

WorkerInPath = Annotated[str, Field(min_length=1, max_length=200)]
# It comes last, since a name would take the place of the words in other paths.
router = APIRouter(prefix="/api/v1/workers", tags=["fleet"], responses=problems(401, 403))


@router.get("")
def list_workers(service: AsViewer) -> Items[WorkerInfo]:
    """List all workers, by name."""
    return Items(items=service.workers())


@router.get("/{worker_id}", responses=problems(404))
def worker(service: AsViewer, worker_id: WorkerInPath) -> WorkerInfo:
    """Return one worker, by its id or its name."""
    return service.worker_of(worker_id)

"""The fleet: workers, readable by every caller."""

from fastapi import APIRouter
from forge_schema.model.worker import WorkerInfo

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import IdInPath

router = APIRouter(prefix="/api/v1/workers", tags=["fleet"], responses=problems(401, 403))


@router.get("")
def list_workers(service: AsViewer) -> Items[WorkerInfo]:
    """List all workers, by name."""
    return Items(items=service.workers())


@router.get("/{worker_id:int}", responses=problems(404))
def worker(service: AsViewer, worker_id: IdInPath) -> WorkerInfo:
    """Return one worker."""
    return service.worker(worker_id)

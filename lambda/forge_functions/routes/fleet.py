"""The fleet: workers, for everybody to read."""

from fastapi import APIRouter
from forge_schema.database.pool import Row
from forge_schema.model.worker import WorkerInfo
from forge_schema.queue.registry import Registry

from forge_functions.auth.caller import Viewer
from forge_functions.errors import problems
from forge_functions.items import Items, Rows
from forge_functions.middleware.bodies import IdInPath
from forge_functions.services import Shared

router = APIRouter(prefix="/api/workers", tags=["fleet"], responses=problems(401, 403))


@router.get("", response_model=Items[WorkerInfo])
def list_workers(who: Viewer, shared: Shared) -> Rows:
    """List every worker, by name."""
    return {"items": Registry(shared.database, actor=who.actor).workers()}


@router.get("/{worker_id:int}", response_model=WorkerInfo, responses=problems(404))
def worker(who: Viewer, shared: Shared, worker_id: IdInPath) -> Row:
    """Return one worker."""
    return Registry(shared.database, actor=who.actor).worker(worker_id)

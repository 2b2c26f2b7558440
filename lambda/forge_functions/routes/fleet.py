"""The fleet: workers, readable by every caller."""

from typing import Annotated

from fastapi import APIRouter
from forge_schema.model.worker import WorkerInfo
from pydantic import Field
from starlette.convertors import StringConvertor, register_url_convertor

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items

# What workers post to: a GET of these is none of a worker, whatever its name.
POSTED_TO = ("claim", "disconnect", "enrol", "heartbeat", "join", "next", "register")


class NameConvertor(StringConvertor):
    """A worker's id or name in a path."""

    regex = rf"(?!(?:{'|'.join(POSTED_TO)})$)[^/]+"


register_url_convertor("worker", NameConvertor())
WorkerInPath = Annotated[str, Field(min_length=1, max_length=200)]
# It comes last, since a name would take the place of the words in other paths.
router = APIRouter(prefix="/api/v1/workers", tags=["fleet"], responses=problems(401, 403))


@router.get("")
def list_workers(service: AsViewer) -> Items[WorkerInfo]:
    """List all workers, by name."""
    return Items(items=service.workers())


@router.get("/{worker_id:worker}", responses=problems(404))
def worker(service: AsViewer, worker_id: WorkerInPath) -> WorkerInfo:
    """Return one worker, by its id or its name."""
    return service.worker_of(worker_id)

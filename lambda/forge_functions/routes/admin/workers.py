"""Workers, for admins: create, drain, rotate, delete."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query
from forge_schema.model.fields import Flag, Word
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import WorkerInfo
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.middleware.bodies import (
    Body,
    IdInPath,
    LastsS,
    PublicKey,
    lasting,
    public_key_of,
)
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/admin/workers", tags=["admin"], responses=problems(401, 403))


class WorkerBody(Body):
    """A worker to create: its name, and labels that it cannot change."""

    name: Annotated[Word, Field(examples=["gpu-1"])]
    kind: WorkerKind = WorkerKind.PERSISTENT
    labels: Annotated[dict[Word, Word], Field(default_factory=dict, max_length=100)]
    lasts_s: LastsS = None


class NewWorker(WorkerBody):
    """A worker with a token, and the key that it signs with."""

    public_key: PublicKey = None


class Lasting(Body):
    """The validity of the new token, and a new public key; without one, the old one stays."""

    lasts_s: LastsS = None
    public_key: PublicKey = None


class Drain(Body):
    """Whether to withdraw the request."""

    undo: Flag = False


# The default for a request without a body.
DRAIN, FOR_GOOD = Drain(), Lasting()


class Made(BaseModel):
    """A worker and its token, which cannot be read again."""

    id: int
    token: str


class Named(BaseModel):
    """The worker with a name."""

    id: int


class Rotated(BaseModel):
    """The new token, which cannot be read again. The old one is invalid."""

    token: str


@router.get("")
def list_workers(service: AsAdmin) -> Items[WorkerInfo]:
    """List all workers, by name."""
    return Items(items=service.workers())


@router.post("", status_code=HTTPStatus.CREATED, responses=problems(409))
def create(service: AsAdmin, new: NewWorker) -> Made:
    """Create a worker that may connect. If the answer was lost, rotate its token."""
    made = service.admin.create_worker(
        new.name,
        ephemeral=new.kind is WorkerKind.EPHEMERAL,
        labels=new.labels,
        lasts=lasting(new.lasts_s),
        public_key=public_key_of(new.public_key),
    )
    return Made(id=int(made.id), token=made.text)


@router.get("/named/newest", responses=problems(404))
def named(service: AsAdmin, name: Annotated[Word, Query()]) -> Named:
    """Find the newest worker with a name, including removed ones."""
    return Named(id=service.admin.worker_named(name))


@router.delete("/{worker_id}", responses=problems(404, 409))
def delete(service: AsAdmin, worker_id: IdInPath) -> Done:
    """Delete a worker that is offline or never connected, and its token."""
    service.admin.delete_worker(worker_id)
    return Done()


@router.post("/{worker_id}/drain", responses=problems(404))
def drain(service: AsAdmin, worker_id: IdInPath, body: Drain = DRAIN) -> Done:
    """Ask a worker to finish its jobs and take no more. An ephemeral one then exits."""
    service.drain(worker_id, undo=body.undo)
    return Done()


@router.post("/{worker_id}/token", responses=problems(404))
def rotate(service: AsAdmin, worker_id: IdInPath, body: Lasting = FOR_GOOD) -> Rotated:
    """Replace a worker's token. The old one is invalid at once."""
    token = service.admin.rotate_worker(
        worker_id, lasts=lasting(body.lasts_s), public_key=public_key_of(body.public_key)
    )
    return Rotated(token=token)

"""Queues and owners' limits, for admins."""

from typing import Annotated

from fastapi import Path
from forge_schema.model.admin import OwnerLimits, OwnerSettings, QueueInfo
from forge_schema.model.fields import Flag, Word
from pydantic import Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.middleware.bodies import Body, Limit
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/admin", tags=["admin"], responses=problems(401, 403))
InPath = Annotated[Word, Path()]


class QueueSettings(Body):
    """All settings of a queue. By default it is not paused and has no limits."""

    paused: Flag = False
    max_jobs: Limit = None
    max_gpus: Limit = None


class QueueChanges(QueueSettings):
    """Some settings of a queue. Those left out stay; a null limit means none."""

    paused: Annotated[Flag, Field(json_schema_extra=lambda said: said.pop("default", None))] = False


@router.get("/queues")
def list_queues(service: AsAdmin) -> Items[QueueInfo]:
    """List all queues ever used or configured, by name."""
    return Items(items=service.admin.queues())


@router.put("/queues/{name:path}", responses=problems(404))
def set_queue(service: AsAdmin, name: InPath, settings: QueueSettings) -> Done:
    """Limit how many jobs and GPUs of a queue run at once, and set whether it is paused."""
    service.admin.set_queue(name, settings.model_dump())
    return Done()


# 404: a name with a line break matches no path.
@router.patch("/queues/{name:path}", responses=problems(404))
def change_queue(service: AsAdmin, name: InPath, changes: QueueChanges) -> Done:
    """Change some settings of a queue. Those left out stay."""
    service.admin.set_queue(name, changes.model_dump(exclude_unset=True))
    return Done()


@router.get("/quotas")
def list_owner_limits(service: AsAdmin) -> Items[OwnerLimits]:
    """List all owners who ever submitted or were configured, by name."""
    return Items(items=service.admin.owner_limits())


@router.put("/quotas/{owner:path}", responses=problems(404))
def set_owner_limits(service: AsAdmin, owner: InPath, settings: OwnerSettings) -> Done:
    """Limit what of an owner runs at once and may be spent without approval; set the weight."""
    service.admin.limit_owner(owner, settings)
    return Done()

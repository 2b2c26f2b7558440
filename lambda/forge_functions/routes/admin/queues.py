"""Queues and quotas, for admins."""

from typing import Annotated

from fastapi import Path
from forge_schema.model.admin import QueueInfo, Quota
from forge_schema.model.fields import Flag, Number, Word
from forge_schema.queue.limits import Admin as Limits
from pydantic import Field

from forge_functions.auth.caller import Admin
from forge_functions.errors import problems
from forge_functions.items import Done, Items, Rows
from forge_functions.middleware.bodies import Body, Limit
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/admin", tags=["admin"], responses=problems(401, 403))
InPath = Annotated[Word, Path()]


class QueueSettings(Body):
    """All settings of a queue: what is left out is not paused, and has no limit."""

    paused: Flag = False
    max_jobs: Limit = None
    max_gpus: Limit = None


class OwnerSettings(Body):
    """All settings of an owner: what is left out has no limit, and weighs 1."""

    max_jobs: Limit = None
    max_gpus: Limit = None
    weight: Annotated[Number, Field(ge=0.001, le=1000)] = 1.0


@router.get("/queues", response_model=Items[QueueInfo])
def list_queues(who: Admin, shared: Shared) -> Rows:
    """List every queue that was ever used or set, by name."""
    return {"items": Limits(shared.database, actor=who.actor).queues()}


@router.put("/queues/{name:path}")
def set_queue(who: Admin, shared: Shared, name: InPath, settings: QueueSettings) -> Done:
    """Set how many jobs and GPUs of a queue run at once, and whether it is paused."""
    limits = Limits(shared.database, actor=who.actor)
    limits.set_queue(
        name, paused=settings.paused, max_jobs=settings.max_jobs, max_gpus=settings.max_gpus
    )
    return Done()


@router.get("/quotas", response_model=Items[Quota])
def list_quotas(who: Admin, shared: Shared) -> Rows:
    """List every owner who ever submitted or was set, by name."""
    return {"items": Limits(shared.database, actor=who.actor).owners()}


@router.put("/quotas/{owner:path}")
def set_quota(who: Admin, shared: Shared, owner: InPath, settings: OwnerSettings) -> Done:
    """Set how many jobs and GPUs of an owner run at once, and the owner's weight."""
    limits = Limits(shared.database, actor=who.actor)
    limits.limit_owner(
        owner, max_jobs=settings.max_jobs, max_gpus=settings.max_gpus, weight=settings.weight
    )
    return Done()

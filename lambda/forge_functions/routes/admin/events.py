"""The audit trail, for admins."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from forge_schema.model.fields import Moment, Word
from forge_schema.model.job import Event
from forge_schema.read.audit import PAGE
from pydantic import Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import DECADE_S, Body, IdInPath

router = APIRouter(prefix="/api/v1/admin/events", tags=["admin"], responses=problems(401, 403))
DAY_S = 86_400


class Wanted(Body):
    """Which events: those after a time, or else the newest."""

    after: Moment | None = None
    since_s: Annotated[int, Field(ge=1, le=DECADE_S, description="maximum age")] = DAY_S
    job_id: IdInPath | None = None
    worker_id: IdInPath | None = None
    actor: Word | None = None
    action: Word | None = None
    count: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


@router.get("")
def list_events(
    service: AsAdmin, wanted: Annotated[Wanted, Query()], request: Request
) -> Items[Event]:
    """List events, oldest first.

    Events of one time are never split between pages, so a page may have more than `count`.
    """
    found = service.admin.events(
        after=wanted.after,
        since=timedelta(seconds=wanted.since_s),
        job_id=wanted.job_id,
        worker_id=wanted.worker_id,
        actor=wanted.actor,
        action=wanted.action,
        count=wanted.count,
    )
    return Items.page(found, request, wanted.count, lambda last: {"after": last.at.isoformat()})

"""The audit trail in words, for admins, newest first."""

from typing import Annotated

from fastapi import Query, Request, Response
from forge_schema.model.fields import Text
from forge_schema.read import audit
from forge_schema.read.audit import NEWEST, AuditFilter, AuditPlace
from pydantic import Field

from forge_functions.dashboard.events_in_words import told
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import ReadsAll
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter()
Part = Annotated[Text, Field(max_length=200), Query()]
Id = Annotated[str, Field(pattern=r"^\d{0,15}$"), Query()]
Before = Annotated[str | None, Query(pattern=r"^\d{1,18}\.\d{1,18}$")]


@router.get("/events")
def events(
    request: Request,
    who: ReadsAll,
    shared: Shared,
    *,
    actor: Part = "",
    action: Part = "",
    job: Id = "",
    worker: Id = "",
    before: Before = None,
) -> Response:
    """Show a page of actions. Empty filters are ignored."""
    place = AuditPlace.read(before) if before else NEWEST
    wanted = AuditFilter(actor or None, action or None, _id(job), _id(worker), place)
    shown = audit.page(shared.database, wanted)
    filters = {"actor": actor, "action": action, "job": job, "worker": worker}
    names = audit.names_of(shared.database, shown.acts)
    return page(
        request,
        who,
        "events.html",
        trail=shown,
        told=told(shown.acts, names),
        names=names,
        filters=filters,
        before=before,
    )


def _id(text: str) -> int | None:
    return int(text) if text else None

"""Queues: what waits and runs in each, and what admins set."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from forge_schema.admin import Admin
from forge_schema.wire_fields import Word

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.visitor import RulesByPage, SeesPages
from forge_functions.services import Shared

router = APIRouter()


@router.get("/queues")
def queues(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show every queue."""
    rows = Admin(shared.database, actor=who.actor).queues()
    return page(request, who, "queues.html", queues=rows)


@router.post("/queues/pause")
def pause(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    name: Annotated[Word, Form()],
    paused: Annotated[bool, Form()],
) -> Response:
    """Pause a queue, or resume it."""
    Admin(shared.database, actor=who.actor).pause(name, paused=paused)
    return after(request, "/queues")

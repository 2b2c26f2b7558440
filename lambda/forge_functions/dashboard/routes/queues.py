"""Queues: their jobs, demand and capacity, and settings."""

from typing import Annotated

from fastapi import Form, Query, Request, Response
from forge_schema.model.fields import Text, Word
from forge_schema.read import overview
from pydantic import Field

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.visit.visitor import RulesByPage, SeesPages
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter()
MOST = 2**31 - 1
After = Annotated[Text, Field(max_length=200), Query(alias="after")]
Limit = Annotated[int | None, Form(ge=0, le=MOST)]


@router.get("/queues")
def queues(request: Request, who: SeesPages, shared: Shared, began: After = "") -> Response:
    """Show a page of queues. The numbers are of the jobs that the visitor sees."""
    scope = who.scope
    database, count = shared.database, overview.PAGE
    rows = overview.queues(database, scope=scope, after=began, count=count + 1)
    return page(
        request,
        who,
        "queues.html",
        queues=rows[:count],
        next_after=rows[count - 1]["name"] if len(rows) > count else None,
        demand=lambda: overview.demand(database, scope=scope),
    )


@router.post("/queues/pause")
def pause(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    name: Annotated[Word, Form()],
    paused: Annotated[bool, Form()],
) -> Response:
    """Pause or resume a queue."""
    shared.service(who).admin.pause(name, paused=paused)
    return after(request, "/queues", "The queue is paused." if paused else "The queue is resumed.")


@router.post("/queues/limits")
def limit(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    *,
    name: Annotated[Word, Form()],
    max_jobs: Limit = None,
    max_gpus: Limit = None,
) -> Response:
    """Limit how many jobs and GPUs of a queue run at once. An empty field means no limit."""
    shared.service(who).admin.limit_queue(name, max_jobs=max_jobs, max_gpus=max_gpus)
    return after(request, "/queues", "The limits are set.")

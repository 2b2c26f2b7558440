"""Queues: their jobs, demand and capacity, and settings."""

from typing import Annotated

from fastapi import Form, Query, Request, Response
from forge_schema.model.fields import Text
from forge_schema.read import overview
from forge_schema.read.series import Span, use_over_time
from pydantic import Field

from forge_functions.dashboard.history import History
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import FormWord, RulesByPage, SeesPages
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter()
MOST = 2**31 - 1
After = Annotated[Text, Field(max_length=200), Query(alias="after")]
Name = Annotated[Text, Field(max_length=200), Query()]
Limit = Annotated[int | None, Form(ge=0, le=MOST)]


@router.get("/queues")
def queues(  # noqa: PLR0917 - the framework passes each by name
    request: Request,
    who: SeesPages,
    shared: Shared,
    began: After = "",
    queue: Name = "",
    over: Span = Span.DAY,
) -> Response:
    """Show a page of queues, and the past of one or all. Visitors see numbers of their jobs."""
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
        spans=list(Span),
        chosen=queue,
        history=lambda: History(
            over, use_over_time(database, over, now=who.now, scope=scope, queue=queue or None)
        ),
    )


@router.post("/queues/pause")
def pause(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    name: FormWord,
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
    name: FormWord,
    max_jobs: Limit = None,
    max_gpus: Limit = None,
) -> Response:
    """Limit how many jobs and GPUs of a queue run at once. An empty field means no limit."""
    shared.service(who).admin.limit_queue(name, max_jobs=max_jobs, max_gpus=max_gpus)
    return after(request, "/queues", "The limits are set.")

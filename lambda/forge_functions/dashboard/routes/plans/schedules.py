"""Schedules: what they submit and when, and their last jobs."""

import shlex
from typing import Annotated

from fastapi import Form, Request, Response

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import FormWord, SeesPages, SubmitsByPage
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/schedules")


@router.get("")
def schedules(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show schedules. Non-admins see only their own."""
    return page(
        request, who, "schedules.html", schedules=shared.service(who).schedules(), shown=shlex.join
    )


@router.post("/run")
def run(
    request: Request, who: SubmitsByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Submit a schedule's job now."""
    job_id = shared.service(who).run_schedule(name, owner=owner)
    return after(request, f"/jobs/{job_id}")


@router.post("/remove")
def remove(
    request: Request, who: SubmitsByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Remove a schedule; the jobs that it submitted stay."""
    shared.service(who).remove_schedule(name, owner=owner)
    return after(request, "/schedules", t("The schedule is removed."))


@router.post("/pause")
def pause(
    request: Request,
    who: SubmitsByPage,
    shared: Shared,
    *,
    name: FormWord,
    owner: FormWord,
    paused: Annotated[bool, Form()],
) -> Response:
    """Pause or resume a schedule."""
    shared.service(who).pause_schedule(name, paused=paused, owner=owner)
    message = t("The schedule is paused.") if paused else t("The schedule is resumed.")
    return after(request, "/schedules", message)

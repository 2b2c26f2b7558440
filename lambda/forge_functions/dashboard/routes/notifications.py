"""Notifications: their rules, what was sent lately, and what was given up."""

from typing import Annotated
from uuid import UUID

from fastapi import Form, Request, Response
from forge_schema.model.fields import Word
from forge_schema.model.notifications import DeliveryState

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.visit.visitor import SeesPages, SubmitsByPage
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/notifications")
PAGE = "/notifications"
SHOWN = 50


@router.get("")
def notifications(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show notifications and their messages. Non-admins see only their own."""
    own = shared.service(who).notifications
    failed = own.deliveries(state=DeliveryState.FAILED, count=SHOWN)
    return page(
        request, who, "notifications.html",
        notifications=own.listed(), failed=failed, newest=own.deliveries(count=SHOWN), most=SHOWN,
    )  # fmt: skip


@router.post("/test")
def test(
    request: Request,
    who: SubmitsByPage,
    shared: Shared,
    name: Annotated[Word, Form()],
    owner: Annotated[Word, Form()],
) -> Response:
    """Have a notification send a message now."""
    shared.service(who).notifications.test(name, owner=owner)
    return after(request, PAGE, t("A message is on its way."))


@router.post("/retry")
def retry(
    request: Request, who: SubmitsByPage, shared: Shared, delivery: Annotated[UUID, Form()]
) -> Response:
    """Send a message that was given up again."""
    seen = shared.service(who).notifications
    failed = seen.delivery(delivery)
    seen.retry(ids=[failed.id], owner=failed.owner)
    return after(request, PAGE, t("The message will be sent again."))


@router.post("/retry-all")
def retry_all(
    request: Request,
    who: SubmitsByPage,
    shared: Shared,
    name: Annotated[Word, Form()],
    owner: Annotated[Word, Form()],
) -> Response:
    """Send all messages of a notification again that were given up."""
    shared.service(who).notifications.retry(name=name, owner=owner)
    return after(request, PAGE, t("The messages will be sent again."))

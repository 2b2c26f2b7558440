"""Notifications: their rules, what was sent lately, and what was given up."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Form, Request, Response
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Text
from forge_schema.model.notifications import TROUBLE, DeliveryState
from forge_schema.model.states import OF_WORKERS, NotificationKind, Occasion
from pydantic import BaseModel

from forge_functions.dashboard.formats import fault_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import FormWord, SeesPages, SubmitsByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/notifications")
PAGE = "/notifications"
SHOWN = 50
INVALID = 422


class NewNotification(BaseModel):
    """The fields of a notification as typed; of one that is `changed`, its owner is named there."""

    name: Text = ""
    kind: NotificationKind = NotificationKind.SLACK
    target: Text = ""
    events: list[Occasion] = []
    query: Text = ""
    team: Text = ""
    changed: Text = ""

    def wanted(self) -> dict[str, Any]:
        """Return what is wanted; an empty target of one that is there stays."""
        stays = {"kind", "target"} if self.changed and not self.target.strip() else set()
        return self.model_dump(mode="json", exclude={"name", "changed", *stays})


@router.get("")
def notifications(
    request: Request, who: SeesPages, shared: Shared, change: Text = "", owner: Text = ""
) -> Response:
    """Show notifications and their messages, and one in the form. Non-admins see their own."""
    form = NewNotification(events=list(TROUBLE))
    for one in shared.service(who).notifications.listed() if change else []:
        if (one.name, one.owner) == (change, owner) and who.changes(owner):
            kept = one.model_dump(include={"name", "kind", "events", "query"})
            form = NewNotification.model_validate(
                {**kept, "team": one.team or "", "changed": owner}
            )
    return _shown(request, who, shared, form)


@router.post("/add")
def add(
    request: Request, who: SubmitsByPage, shared: Shared, form: Annotated[NewNotification, Form()]
) -> Response:
    """Store one under a name that has none, or that is changed; show a webhook's secret once."""
    own, name = shared.service(who).notifications, form.name.strip()
    named = (name, form.changed or who.owner)
    there = next((one for one in own.listed() if (one.name, one.owner) == named), None)
    if there and not form.changed:
        fault = t("There is a notification of this name: change that one.")
        return _shown(request, who, shared, form, fault=fault)
    if there and there.kind != form.kind and not form.target.strip():
        fault = t("Another kind needs its own target.")
        return _shown(request, who, shared, form, fault=fault)
    server, owner = shared.url(str(request.base_url)), form.changed or None
    try:
        kept = own.keep(name, form.wanted(), server=server, owner=owner)
    except ForgeError as error:
        return _shown(request, who, shared, form, fault=fault_of(error))
    if kept.secret and form.kind is NotificationKind.WEBHOOK:
        fresh = NewNotification(events=list(TROUBLE))
        return _shown(request, who, shared, fresh, secret=kept.secret)
    return after(request, PAGE, t("The notification is kept."))


def _shown(
    request: Request,
    who: Visitor,
    shared: Services,
    form: NewNotification,
    *,
    fault: str = "",
    secret: str = "",
) -> Response:
    own = shared.service(who).notifications
    failed = own.deliveries(state=DeliveryState.FAILED, count=SHOWN)
    return page(
        request, who, "notifications.html", INVALID if fault else 200, path=PAGE,
        notifications=own.listed(), failed=failed, newest=own.deliveries(count=SHOWN), most=SHOWN,
        form=form, fault=fault, secret=secret, kinds=list(NotificationKind),
        occasions=[one for one in Occasion if who.admin or one not in OF_WORKERS],
    )  # fmt: skip


@router.post("/test")
def test(
    request: Request, who: SubmitsByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Have a notification send a message now."""
    shared.service(who).notifications.test(name, owner=owner)
    return after(request, PAGE, t("A message is on its way."))


@router.post("/remove")
def remove(
    request: Request, who: SubmitsByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Remove a notification, and what it has not sent."""
    shared.service(who).notifications.remove(name, owner=owner)
    return after(request, PAGE, t("The notification is removed."))


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
    request: Request, who: SubmitsByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Send all messages of a notification again that were given up."""
    shared.service(who).notifications.retry(name=name, owner=owner)
    return after(request, PAGE, t("The messages will be sent again."))

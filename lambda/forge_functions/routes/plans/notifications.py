"""Notifications: messages about events; and their deliveries."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from forge_schema.model.fields import Word
from forge_schema.model.notifications import (
    Delivery,
    DeliveryState,
    KeptNotification,
    Notification,
    NotificationName,
    NotificationRequest,
)
from forge_schema.notifications.rules import PAGE
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsSubmitter, AsViewer
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Services, services

router = Router(prefix="/api/v1/queue", tags=["notifications"], responses=problems(401, 403))
Name = Annotated[NotificationName, Path()]
Owner = Annotated[Word | None, Query(description="the owner; only an admin may name another")]


def own_url(request: Request, shared: Annotated[Services, Depends(services)]) -> str:
    """Return the URL of this server, for links."""
    return shared.url(str(request.base_url))


OwnUrl = Annotated[str, Depends(own_url)]


class WhichDeliveries(Body):
    """Which deliveries: those before one of them, or else the newest."""

    name: NotificationName | None = None
    state: DeliveryState | None = None
    before: UUID | None = None
    count: Annotated[int, Field(ge=1, le=PAGE)] = 50


class FailedDeliveries(Body):
    """Which failed deliveries: of a notification, some by id, or all."""

    name: NotificationName | None = None
    ids: Annotated[list[UUID], Field(max_length=PAGE)] | None = None
    owner: Word | None = None


class Retried(BaseModel):
    """How many deliveries are tried again."""

    retried: int


@router.get("/notifications")
def list_notifications(service: AsViewer, owner: Owner = None) -> Items[Notification]:
    """List the notifications that the caller may see, by name."""
    return Items(items=service.notifications.listed(owner=owner))


@router.put("/notifications/{name:path}", responses=problems(404))
def keep_notification(
    service: AsSubmitter,
    name: Name,
    new: NotificationRequest,
    server: OwnUrl,
    owner: Owner = None,
) -> KeptNotification:
    """Store a notification; of one that is there, what is left out stays.

    A new secret is shown once.
    """
    given = new.model_dump(exclude_unset=True)
    return service.notifications.keep(name, given, server=server, owner=owner)


@router.delete("/notifications/{name:path}", responses=problems(404))
def remove_notification(service: AsSubmitter, name: Name, owner: Owner = None) -> Done:
    """Remove a notification, and what it has not sent."""
    service.notifications.remove(name, owner=owner)
    return Done()


@router.post("/test-notification/{name:path}", responses=problems(404))
def send_a_test(service: AsSubmitter, name: Name, owner: Owner = None) -> Delivery:
    """Have a notification send a message, soon; the delivery tells how it went."""
    return service.notifications.test(name, owner=owner)


@router.get("/deliveries")
def list_deliveries(
    service: AsViewer, which: Annotated[WhichDeliveries, Query()], request: Request
) -> Items[Delivery]:
    """List deliveries of notifications, the newest first."""
    found = service.notifications.deliveries(**which.model_dump())
    return Items.page(found, request, which.count, lambda last: {"before": last.id})


@router.get("/deliveries/{delivery_id}", responses=problems(404))
def delivery(service: AsViewer, delivery_id: Annotated[UUID, Path()]) -> Delivery:
    """Return a delivery: its state, its tries and the last error."""
    return service.notifications.delivery(delivery_id)


@router.post("/retry-deliveries")
def retry_deliveries(service: AsSubmitter, failed: FailedDeliveries) -> Retried:
    """Have failed deliveries tried again from the start. A repeat finds none."""
    return Retried(retried=service.notifications.retry(**failed.model_dump()))

"""The verbs about notifications; the owner is the caller unless an admin names another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from forge_schema.model.notifications import (
    Delivery,
    DeliveryState,
    KeptNotification,
    Notification,
    NotificationName,
    NotificationRequest,
    Notifier,
    NotifierChanges,
    Retried,
)
from forge_schema.model.states import OF_WORKERS, Role
from forge_schema.model.stored import PAGE
from forge_schema.service.caller import Forbidden, Verbs
from forge_schema.service.parameters import Count, Owner, OwnerInBody
from forge_schema.service.submitting import Fields, checked
from forge_schema.service.verb import ADMIN, SUBMITTER, FilledIn, Pages, Sent, verb

if TYPE_CHECKING:
    from forge_schema.notifications import rules

NAMED = "/queue/notifications/{name:path}"
NOTIFIER = "/admin/notifier"
DeliveryId = Annotated[str | UUID, Sent(kind=UUID, write=lambda number, _owner: str(number))]
DeliveryIds = Annotated[list[UUID], Field(max_length=PAGE)]


def _whole(kind: type[BaseModel]) -> Sent:
    return Sent(kind=kind, where="whole", read=lambda some: some.model_dump(exclude_unset=True))


class NotificationNaming(BaseModel):
    """The name that a person gives a notification."""

    name: NotificationName


class Choosing(BaseModel):
    """The state that a person chooses deliveries by."""

    state: DeliveryState | None


class Notifying(Verbs):
    """Viewers read, submitters change; admins see and change those of all owners."""

    @verb("GET", "/queue/notifications", tag="notifications")
    def listed(self, *, owner: Owner = None) -> list[Notification]:
        """Return the notifications of an owner, or all that the caller may see, by name."""
        return self._seen(owner).listed()

    @verb("PUT", NAMED, SUBMITTER, errors=(404,), tag="notifications", names_fields="other")
    def keep(
        self,
        name: NotificationName,
        wanted: Annotated[Fields, _whole(NotificationRequest)],
        *,
        server: FilledIn = "",
        owner: Owner = None,
    ) -> KeptNotification:
        """Store a notification under a name; of one that is there, what is left out stays.

        A new secret is shown once.

        Args:
            name: its name.
            wanted: the fields of a `NotificationRequest`.
            server: the URL of the dashboard, for links.
            owner: whose jobs it tells of.

        Raises:
            NotificationInvalid: its target or its query cannot be used.
            NotificationUnknown: there is none with this name, and no target is given.
            FilterInvalid: its query is malformed.
            Forbidden: only an admin's notification tells of everyone's jobs, or of workers, and of
                a team's only that of a caller who sees them.
            NoSuchTeam: there is no such team.
        """
        checked(NotificationNaming, {"name": name}, ())
        request = checked(NotificationRequest, wanted, ())
        own = self._of(owner)
        whole = own.planned(name, request)
        if whole.everyone or not set(OF_WORKERS).isdisjoint(whole.events or ()):
            self.caller.require(Role.ADMIN)
        if request.team:
            self._check_team(request.team)
        self._check_room("notification", name, owner)
        return own.keep(name, request, server=server or None)

    @verb("DELETE", NAMED, SUBMITTER, again=False, errors=(404,), tag="notifications")
    def remove(self, name: NotificationName, *, owner: Owner = None) -> None:
        """Remove a notification, and what it has not sent."""
        self._of(owner).remove(name)

    @verb(
        "POST", "/queue/test-notification/{name:path}", SUBMITTER, again=False, errors=(404,),
        tag="notifications",
    )  # fmt: skip
    def test(self, name: NotificationName, *, owner: Owner = None) -> Delivery:
        """Have a notification send a message, soon; the delivery tells how it went."""
        own = self._of(owner)
        return own.delivery(UUID(own.test(name)))

    @verb("GET", "/queue/deliveries", pages=Pages({"before": "id"}), tag="notifications")
    def deliveries(
        self,
        *,
        name: NotificationName | None = None,
        state: Annotated[str | None, Sent(kind=DeliveryState | None)] = None,
        before: Annotated[str | UUID | None, Sent(kind=UUID | None)] = None,
        count: Count = 50,
    ) -> list[Delivery]:
        """Return deliveries before one of them, or else the newest; the newest first."""
        chosen = checked(Choosing, {"state": state}, ()).state
        last = None if before is None else _delivery_id(before)
        return self._seen(None).deliveries(name=name, state=chosen, before=last, count=count)

    @verb("GET", "/queue/deliveries/{delivery_id}", errors=(404,), tag="notifications")
    def delivery(self, delivery_id: DeliveryId) -> Delivery:
        """Return a delivery: its state, its tries and the last error."""
        return self._seen(None).delivery(_delivery_id(delivery_id))

    @verb(
        "POST", "/queue/retry-deliveries", SUBMITTER, answer=Retried, tag="notifications",
        title="retry_deliveries",
    )  # fmt: skip
    def retry(
        self,
        *,
        name: NotificationName | None = None,
        ids: Annotated[Sequence[str | UUID] | None, Sent(kind=DeliveryIds | None)] = None,
        owner: OwnerInBody = None,
    ) -> int:
        """Send failed deliveries again: of a notification, some by id, or all. A repeat finds none.

        The answer is how many.
        """
        some = None if ids is None else [_delivery_id(delivery) for delivery in ids]
        those = self._seen(None) if owner is None else self._of(owner)
        return those.retry(name=name, ids=some)

    @verb("GET", NOTIFIER, ADMIN, tag="admin")
    def notifier(self) -> Notifier:
        """Return the mail server without its password, its sender, and what webhooks reach."""
        from forge_schema.notifications import rules

        return rules.notifier(self._database)

    @verb("PATCH", NOTIFIER, ADMIN, tag="admin", names_fields="other")
    def set_notifier(self, changes: Annotated[Fields, _whole(NotifierChanges)]) -> Notifier:
        """Set the mail server, its sender, and the networks that webhooks may reach."""
        from forge_schema.notifications import rules

        wanted = checked(NotifierChanges, changes, ())
        rules.set_notifier(self._database, wanted, actor=self.caller.actor)
        return rules.notifier(self._database)

    def _check_team(self, team: str) -> None:
        from forge_schema.queue.limits import Limits, NoSuchTeam

        if not self.caller.sees_team(team):
            raise Forbidden(f"you do not see the jobs of the team {team}")
        if not Limits(self._database, actor=self.caller.actor).teams(team):
            raise NoSuchTeam(team)

    def _of(self, owner: str | None) -> rules.Notifications:
        from forge_schema.notifications import rules

        whose = self.caller.acting_for(owner, "change the notifications")
        return rules.Notifications(
            self._database, owner=whose, scope=[whose], actor=self.caller.actor
        )

    def _seen(self, owner: str | None) -> rules.Notifications:
        from forge_schema.notifications import rules

        if owner is not None:
            self.caller.acting_for(owner, "read the notifications", reading=True)
        caller = self.caller
        return rules.Notifications(
            self._database, owner=caller.own, scope=caller.within(owner), actor=caller.actor
        )


def _delivery_id(text: str | UUID) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as error:
        from forge_schema.notifications.rules import DeliveryUnknown

        raise DeliveryUnknown(
            f"{text!r} is not the id of a delivery",
            hint="`forge notification deliveries` lists them",
        ) from error

"""The verbs about notifications; the owner is the caller unless an admin names another."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import BaseModel

from forge_schema.model.notifications import (
    Delivery,
    DeliveryState,
    KeptNotification,
    Notification,
    NotificationName,
    NotificationRequest,
    Notifier,
    NotifierChanges,
    Occasion,
)
from forge_schema.model.states import Role
from forge_schema.notifications import rules
from forge_schema.notifications.rules import DeliveryUnknown
from forge_schema.service.caller import Verbs
from forge_schema.service.submitting import Fields, checked


class Naming(BaseModel):
    """The name that a person gives a notification."""

    name: NotificationName


class Choosing(BaseModel):
    """The state that a person chooses deliveries by."""

    state: DeliveryState | None


class Notifying(Verbs):
    """Viewers read, submitters change; admins see and change those of all owners."""

    def listed(self, *, owner: str | None = None) -> list[Notification]:
        """Return the notifications of an owner, or all that the caller may see, by name."""
        return self._seen(owner).listed()

    def keep(
        self,
        name: str,
        wanted: Fields,
        *,
        server: str | None = None,
        owner: str | None = None,
    ) -> KeptNotification:
        """Store a notification under a name; of one that is there, what is left out stays.

        Args:
            name: its name.
            wanted: the fields of a `NotificationRequest`.
            server: the URL of the dashboard, for links.
            owner: whose jobs it tells of.

        Raises:
            NotificationInvalid: its target or its query cannot be used.
            NotificationUnknown: there is none with this name, and no target is given.
            FilterInvalid: its query is malformed.
            Forbidden: only an admin's notification tells of everyone's jobs, or of workers.
        """
        self.caller.require(Role.SUBMITTER)
        checked(Naming, {"name": name}, ())
        request = checked(NotificationRequest, wanted, ())
        own = self._of(owner)
        whole = own.planned(name, request)
        if whole.everyone or Occasion.WORKER_OFFLINE in (whole.events or ()):
            self.caller.require(Role.ADMIN)
        self._check_room("notification", name, owner)
        return own.keep(name, request, server=server)

    def remove(self, name: str, *, owner: str | None = None) -> None:
        """Remove a notification, and what it has not sent."""
        self.caller.require(Role.SUBMITTER)
        self._of(owner).remove(name)

    def test(self, name: str, *, owner: str | None = None) -> Delivery:
        """Have a notification send a message at once; the sweeper sends it."""
        self.caller.require(Role.SUBMITTER)
        own = self._of(owner)
        return own.delivery(UUID(own.test(name)))

    def deliveries(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        before: str | UUID | None = None,
        count: int = rules.PAGE,
    ) -> list[Delivery]:
        """Return deliveries, the newest first, before one of them."""
        chosen = checked(Choosing, {"state": state}, ()).state
        last = None if before is None else _delivery_id(before)
        return self._seen(None).deliveries(name=name, state=chosen, before=last, count=count)

    def delivery(self, delivery_id: str | UUID) -> Delivery:
        """Return a delivery."""
        return self._seen(None).delivery(_delivery_id(delivery_id))

    def retry(
        self,
        *,
        name: str | None = None,
        ids: Sequence[str | UUID] | None = None,
        owner: str | None = None,
    ) -> int:
        """Send failed deliveries again: of a notification, some by id, or all; return how many."""
        self.caller.require(Role.SUBMITTER)
        some = None if ids is None else [_delivery_id(one) for one in ids]
        return self._seen(owner).retry(name=name, ids=some)

    def notifier(self) -> Notifier:
        """Return how notifications leave, without a password."""
        self.caller.require(Role.ADMIN)
        return rules.notifier(self._database)

    def set_notifier(self, changes: Fields) -> Notifier:
        """Set the mail server, its sender, and the networks that webhooks may reach."""
        self.caller.require(Role.ADMIN)
        wanted = checked(NotifierChanges, changes, ())
        rules.set_notifier(self._database, wanted, actor=self.caller.actor)
        return rules.notifier(self._database)

    def _of(self, owner: str | None) -> rules.Notifications:
        whose = self.caller.acting_for(owner, "read or change the notifications")
        return rules.Notifications(self._database, owner=whose, actor=self.caller.actor)

    def _seen(self, owner: str | None) -> rules.Notifications:
        if owner is not None:
            return self._of(owner)
        scope, actor = self.caller.scope, self.caller.actor
        return rules.Notifications(self._database, owner=scope, actor=actor)


def _delivery_id(text: str | UUID) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as error:
        raise DeliveryUnknown(
            f"{text!r} is not the id of a delivery",
            hint="`forge notification deliveries` lists them",
        ) from error

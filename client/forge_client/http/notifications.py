"""Notifications, through a server."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from forge_schema.model.notifications import Delivery, KeptNotification, Notification, Notifier

from forge_client.http.errors import rejected_job
from forge_client.http.transport import Transport

NOTIFICATIONS = "/api/v1/queue/notifications"
DELIVERIES = "/api/v1/queue/deliveries"
NOTIFIER = "/api/v1/admin/notifier"


class HttpNotifications:
    """Asks a server.

    Args:
        transport: how to reach it.
        owner: whose notifications are meant by default; None is the key's owner.
    """

    def __init__(self, transport: Transport, *, owner: str | None) -> None:
        self._transport = transport
        self._owner = owner

    def listed(self) -> list[Notification]:
        answer = self._transport.get(NOTIFICATIONS, owner=self._owner)
        return self._transport.records(Notification, answer)

    def keep(
        self, name: str, wanted: Mapping[str, Any], *, owner: str | None = None
    ) -> KeptNotification:
        with rejected_job():
            path = self._owned(NOTIFICATIONS, name, owner)
            answer = self._transport.send("PUT", path, dict(wanted), again=True)
        return self._transport.record(KeptNotification, answer)

    def remove(self, name: str, *, owner: str | None = None) -> None:
        self._transport.send("DELETE", self._owned(NOTIFICATIONS, name, owner), again=False)

    def test(self, name: str, *, owner: str | None = None) -> Delivery:
        path = self._owned("/api/v1/queue/test-notification", name, owner)
        return self._transport.record(Delivery, self._transport.send("POST", path, again=False))

    def deliveries(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        before: str | None = None,
        count: int = 50,
    ) -> list[Delivery]:
        which = {"name": name, "state": state, "before": before, "count": count}
        answer = self._transport.get(DELIVERIES, **which)
        return self._transport.records(Delivery, answer)

    def delivery(self, delivery_id: str) -> Delivery:
        answer = self._transport.get(f"{DELIVERIES}/{quote(delivery_id, safe='')}")
        return self._transport.record(Delivery, answer)

    def retry(
        self,
        *,
        name: str | None = None,
        ids: Sequence[str] | None = None,
        owner: str | None = None,
    ) -> int:
        some = None if ids is None else list(ids)
        body = {"name": name, "ids": some, "owner": owner or self._owner}
        answer = self._transport.send("POST", "/api/v1/queue/retry-deliveries", body, again=True)
        retried: int = self._transport.field(answer, "retried")
        return retried

    def notifier(self) -> Notifier:
        return self._transport.record(Notifier, self._transport.get(NOTIFIER))

    def set_notifier(self, changes: Mapping[str, Any]) -> Notifier:
        with rejected_job():
            answer = self._transport.send("PATCH", NOTIFIER, dict(changes), again=True)
        return self._transport.record(Notifier, answer)

    def _owned(self, path: str, name: str, owner: str | None) -> str:
        whose = owner or self._owner
        asked = f"?owner={quote(whose, safe='')}" if whose else ""
        return f"{path}/{quote(name, safe='')}{asked}"

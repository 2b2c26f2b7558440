"""Job configs and schedules, through a server."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from forge_schema.model.job import Schedule, Template

from forge_client.http.errors import rejected_job
from forge_client.http.transport import Transport

TEMPLATES = "/api/v1/queue/templates"
SCHEDULES = "/api/v1/queue/schedules"


class HttpPlans:
    """Asks a server.

    Args:
        transport: how to reach it.
        owner: whose configs and schedules are meant; None is the key's owner.
    """

    def __init__(self, transport: Transport, *, owner: str | None) -> None:
        self._transport = transport
        self._owner = owner

    def templates(self) -> list[Template]:
        return self._transport.records(Template, self._transport.get(TEMPLATES, owner=self._owner))

    def template(self, name: str) -> Template:
        answer = self._transport.get(_named(TEMPLATES, name), owner=self._owner)
        return self._transport.record(Template, answer)

    def keep_template(self, name: str, spec: Mapping[str, Any]) -> None:
        with rejected_job():
            path = self._owned(TEMPLATES, name)
            self._transport.send("PUT", path, {"spec": dict(spec)}, again=True)

    def remove_template(self, name: str) -> None:
        self._transport.send("DELETE", self._owned(TEMPLATES, name), again=False)

    def schedules(self) -> list[Schedule]:
        return self._transport.records(Schedule, self._transport.get(SCHEDULES, owner=self._owner))

    def schedule(self, name: str) -> Schedule:
        answer = self._transport.get(_named(SCHEDULES, name), owner=self._owner)
        return self._transport.record(Schedule, answer)

    def check_schedule(self, name: str, cron: str, *, timezone: str = "UTC") -> None:
        body = {"name": name, "cron": cron, "timezone": timezone}
        with rejected_job():
            self._transport.send("POST", "/api/v1/queue/check-schedule", body, again=True)

    def keep_schedule(
        self,
        name: str,
        cron: str,
        spec: Mapping[str, Any],
        *,
        timezone: str = "UTC",
        overlap: bool = True,
    ) -> Schedule:
        body = {"cron": cron, "timezone": timezone, "overlap": overlap, "spec": dict(spec)}
        with rejected_job():
            path = self._owned(SCHEDULES, name)
            answer = self._transport.send("PUT", path, body, again=True)
        return self._transport.record(Schedule, answer)

    def pause_schedule(self, name: str, *, paused: bool = True) -> None:
        path = self._owned(SCHEDULES, name)
        self._transport.send("PATCH", path, {"paused": paused}, again=True)

    def remove_schedule(self, name: str) -> None:
        self._transport.send("DELETE", self._owned(SCHEDULES, name), again=False)

    def _owned(self, path: str, name: str) -> str:
        whose = f"?owner={quote(self._owner, safe='')}" if self._owner else ""
        return _named(path, name) + whose


def _named(path: str, name: str) -> str:
    return f"{path}/{quote(name, safe='')}"

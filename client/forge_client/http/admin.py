"""What only admins may do, through a server."""

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from forge_schema.model.admin import (
    ApiKey,
    Approved,
    AwaitingApproval,
    Invitation,
    OwnerLimits,
    OwnerSettings,
    QueueInfo,
    Secret,
)
from forge_schema.model.job import Event

from forge_client.http.transport import Transport

KEYS = "/api/v1/admin/keys"
WORKERS = "/api/v1/admin/workers"
INVITATIONS = "/api/v1/admin/invitations"
QUEUES = "/api/v1/admin/queues"
OWNERS = "/api/v1/admin/quotas"
APPROVALS = "/api/v1/admin/approvals"
EVENTS = "/api/v1/admin/events"
LAST_DAY = timedelta(days=1)


class HttpAdmin:
    """Asks a server; what makes something anew is never repeated unasked."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def api_keys(self) -> list[ApiKey]:
        return self._transport.records(ApiKey, self._transport.get(KEYS))

    def create_key(
        self,
        owner: str,
        role: str,
        *,
        name: str = "",
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        body = {
            "owner": owner,
            "role": role,
            "name": name,
            "lasts_s": _seconds(lasts),
            "public_key": _base64(public_key),
        }
        answer = self._transport.send("POST", KEYS, _given(body), again=False)
        return Secret(self._text(answer, "id"), self._text(answer, "token"))

    def rotate_key(self, key_id: str) -> str:
        answer = self._transport.send("POST", f"{KEYS}/{_part(key_id)}/token", again=False)
        return self._text(answer, "token")

    def revoke_key(self, key_id: str) -> None:
        self._transport.send("DELETE", f"{KEYS}/{_part(key_id)}", again=True)

    def create_worker(
        self,
        name: str,
        *,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        body = {
            "name": name,
            "kind": "ephemeral" if ephemeral else "persistent",
            "labels": dict(labels or {}),
            "lasts_s": _seconds(lasts),
            "public_key": _base64(public_key),
        }
        answer = self._transport.send("POST", WORKERS, _given(body), again=False)
        return Secret(self._text(answer, "id"), self._text(answer, "token"))

    def invite_worker(
        self,
        name: str,
        *,
        url: str | None = None,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
    ) -> Invitation:
        body = {
            "name": name,
            "url": url,
            "kind": "ephemeral" if ephemeral else "persistent",
            "labels": dict(labels or {}),
            "lasts_s": _seconds(lasts),
        }
        # A repeat only replaces a line that nobody has seen.
        answer = self._transport.send("POST", INVITATIONS, _given(body), again=True)
        return self._transport.record(Invitation, answer)

    def rotate_worker(
        self, worker_id: int, *, lasts: timedelta | None = None, public_key: bytes | None = None
    ) -> str:
        body = _given({"lasts_s": _seconds(lasts), "public_key": _base64(public_key)})
        answer = self._transport.send("POST", f"{WORKERS}/{worker_id}/token", body, again=True)
        return self._text(answer, "token")

    def worker_named(self, name: str) -> int:
        answer = self._transport.get(f"{WORKERS}/named/newest", name=name)
        return int(self._text(answer, "id"))

    def delete_worker(self, worker_id: int) -> None:
        self._transport.send("DELETE", f"{WORKERS}/{worker_id}", again=False)

    def events(
        self,
        *,
        since: timedelta = LAST_DAY,
        after: datetime | None = None,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        action: str | None = None,
        count: int = 1000,
    ) -> list[Event]:
        answer = self._transport.get(
            EVENTS,
            since_s=_seconds(since),
            after=after.isoformat() if after else None,
            job_id=job_id,
            worker_id=worker_id,
            actor=actor,
            action=action,
            count=count,
        )
        return self._transport.records(Event, answer)

    def queues(self) -> list[QueueInfo]:
        return self._transport.records(QueueInfo, self._transport.get(QUEUES))

    def pause(self, queue: str, *, paused: bool = True) -> None:
        self._set_queue(queue, {"paused": paused})

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        self._set_queue(queue, {"max_jobs": max_jobs, "max_gpus": max_gpus})

    def _set_queue(self, queue: str, changes: Mapping[str, Any]) -> None:
        self._transport.send("PATCH", f"{QUEUES}/{_part(queue)}", changes, again=True)

    def owner_limits(self) -> list[OwnerLimits]:
        return self._transport.records(OwnerLimits, self._transport.get(OWNERS))

    def limit_owner(self, owner: str, settings: OwnerSettings) -> None:
        # What was left out stays.
        body = settings.model_dump(exclude_unset=True)
        self._transport.send("PUT", f"{OWNERS}/{_part(owner)}", body, again=True)

    def approvals(
        self,
        *,
        owner: str | None = None,
        sweep: str | None = None,
        after: int = 0,
        count: int = 1000,
    ) -> list[AwaitingApproval]:
        answer = self._transport.get(APPROVALS, owner=owner, sweep=sweep, after=after, count=count)
        return self._transport.records(AwaitingApproval, answer)

    def approve(self, job_ids: Sequence[int]) -> Approved:
        body = {"job_ids": list(job_ids)}
        answer = self._transport.send("POST", APPROVALS, body, again=True)
        return self._transport.record(Approved, answer)

    def _text(self, answer: object, name: str) -> str:
        return str(self._transport.field(answer, name))


def _part(text: str) -> str:
    return quote(text, safe="")


def _seconds(lasts: timedelta | None) -> int | None:
    return None if lasts is None else math.ceil(lasts.total_seconds())


def _base64(key: bytes | None) -> str | None:
    return None if key is None else base64.b64encode(key).decode()


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}

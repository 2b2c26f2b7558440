"""The checks of `forge doctor` through a server: connection, server's health, API key."""

from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Literal

from forge_schema.http_client import in_the_clear
from forge_schema.model.admin import Myself
from forge_schema.model.worker import WorkerInfo
from pydantic import BaseModel, ValidationError

from forge_client.backend import Check, CheckStanding, checked, failed, workers_check
from forge_client.errors import ClientError
from forge_client.http import Server
from forge_client.http.errors import Retryable, not_forge
from forge_client.http.transport import Transport

OPERATORS = "the server's log has more details"
SWEEPER = (
    "on the server's machine, `systemctl start forge-sweeper` starts it, or a second `forge-server"
    " init` with the same --dir"
)
TO_START = "start one with `forge-worker`; an admin adds a machine with `forge worker add NAME`"


class HealthFinding(BaseModel, defer_build=True):
    """One check of the server's public health report."""

    name: str
    standing: Literal["ok", "failing", "unknown"]
    detail: str = ""

    def check(self) -> Check:
        """Return it as a `Check`."""
        standings = {
            "ok": CheckStanding.OK,
            "failing": CheckStanding.FAIL,
            "unknown": CheckStanding.WARN,
        }
        hint = SWEEPER if self.name == "sweeper" and "sweeper" in self.detail else OPERATORS
        hint = "" if self.standing == "ok" else hint
        standing = standings[self.standing]
        return Check(name=self.name, standing=standing, detail=self.detail, hint=hint)


class ServerHealth(BaseModel, defer_build=True):
    """The answer of `/health`, healthy or not."""

    version: str = ""
    checks: list[HealthFinding]


def checks(
    transport: Transport, me: Callable[[], Myself], workers: Callable[[], list[WorkerInfo]]
) -> list[Check]:
    """Check each part separately, so that a failed one does not hide the others."""
    findings = list(_server(transport))
    if findings[0].standing is not CheckStanding.FAIL:
        findings += checked("API key", lambda: _key(transport, me()))
    if findings[-1].name == "API key" and findings[-1].standing is not CheckStanding.FAIL:
        findings += checked("workers", lambda: workers_check(workers(), TO_START))
    return findings


def _server(transport: Transport) -> Iterator[Check]:
    try:
        health = _health(transport)
    except Retryable as unanswered:
        yield failed("server", unanswered.error)
    except ClientError as error:
        yield failed("server", error)
    else:
        version = f", version {health.version}" if health.version else ""
        where = f"{transport.server.url}{version}"
        yield Check(name="server", standing=CheckStanding.OK, detail=where)
        yield from (finding.check() for finding in health.checks)


def _health(transport: Transport) -> ServerHealth:
    answer = transport.exchange("GET", "/health", auth=None)
    if answer.status_code not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
        raise not_forge(answer, transport.server.url)
    try:
        return ServerHealth.model_validate_json(answer.content)
    except ValidationError:
        raise not_forge(answer, transport.server.url) from None


def require_server(server: Server) -> None:
    """Check that a Forge server answers, healthy or not.

    Raises:
        ClientError: none does.
    """
    with closing(Transport(server)) as transport:
        try:
            _health(transport)
        except Retryable as unanswered:
            raise unanswered.error from unanswered


def _key(transport: Transport, caller: Myself) -> Check:
    detail = f"{caller.owner}, with the role {caller.role}"
    if in_the_clear(transport.server.url):
        hint = "anyone on the network path can read the API key; use https://"
        return Check(name="API key", standing=CheckStanding.WARN, detail=detail, hint=hint)
    if not transport.server.verify:
        hint = "the server can be impersonated; unset FORGE_INSECURE_SKIP_VERIFY"
        return Check(name="API key", standing=CheckStanding.WARN, detail=detail, hint=hint)
    return Check(name="API key", standing=CheckStanding.OK, detail=detail)

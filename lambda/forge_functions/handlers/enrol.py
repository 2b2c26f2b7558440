"""Enrolment: a machine of an Auto Scaling group requests its own worker token.

Machines need no secret: they sign the request with their instance profile, API Gateway checks the
signature, and the name of an instance's session is the instance's id.
"""

import json
import re
import sys
from functools import cache
from http import HTTPStatus
from typing import Any

import structlog
from forge_schema.access.worker_tokens import NameTaken, WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.worker import NoSuchWorker
from forge_schema.program.log import configure_log
from forge_schema.queue.registry import Registry
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")

log = structlog.get_logger(__name__)


class EnrolmentSettings(BaseSettings):
    """The database of the workers, and the machines allowed to enrol."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", extra="ignore")

    database_url: str = Field(description="the queue's database, postgresql://…")
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    enrol_role: str = Field(min_length=1, description="the unique id of the machines' role, AROA…")


@cache
def settings() -> EnrolmentSettings:
    """Return the settings, read with the first event."""
    configure_log("json", sys.stdout)
    return EnrolmentSettings.model_validate({})


@cache
def database() -> Database:
    """Return the database, which stays open between invocations.

    Raises:
        DatabaseUnreachable: it does not answer; the next use tries again.
    """
    return Database(settings().database_url, size=1, prepare=settings().prepare).open()


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer a signed request with `worker_id` and `token`. An earlier token is invalidated."""
    machine = instance(event, settings().enrol_role)
    if machine is None:
        return problem(
            event, HTTPStatus.FORBIDDEN, "forbidden", "only machines of the pool may enrol"
        )
    try:
        worker_id, token = enrol(machine)
    except ForgeError as error:
        log.warning("enrolment_refused", machine=machine, code=error.code, message=error.message)
        message = "the database is not available now"
        return problem(event, HTTPStatus.SERVICE_UNAVAILABLE, error.code, message)
    log.info("enrolled", machine=machine, worker=worker_id)
    return answer(HTTPStatus.OK, {"worker_id": worker_id, "token": token})


def instance(event: dict[str, Any], role: str) -> str | None:
    """Return the id of the calling machine; None for other callers."""
    context = event.get("requestContext", {})
    caller = (context.get("authorizer") or {}).get("iam", {}).get("userId") or ""
    its_role, _, session = caller.partition(":")
    return session if its_role == role and INSTANCE.fullmatch(session) else None


def enrol(machine: str) -> tuple[int, str]:
    """Create the machine's worker, or replace its token if an earlier call created it.

    Raises:
        DatabaseUnreachable: the database does not answer.
        NoSuchWorker: it was removed in the meantime; another call creates it again.
    """
    tokens = WorkerTokens(database(), actor=f"machine:{machine}")
    try:
        return tokens.create(machine)
    except NameTaken:
        workers = Registry(database(), actor=f"machine:{machine}").workers()
    for row in workers:
        if row["name"] == machine:
            return row["id"], tokens.rotate(row["id"])
    raise NoSuchWorker(f"the worker {machine} was removed meanwhile", hint="try again")


def problem(event: dict[str, Any], status: HTTPStatus, code: str, message: str) -> dict[str, Any]:
    """Return an error in the common shape."""
    request_id = event.get("requestContext", {}).get("requestId", "")
    body = {"code": code, "message": message, "hint": "", "request_id": request_id}
    return answer(status, body)


def answer(status: HTTPStatus, body: dict[str, Any]) -> dict[str, Any]:
    """Return the dict that API Gateway turns into an HTTP response."""
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return {"statusCode": int(status), "headers": headers, "body": json.dumps(body)}

"""Setup: migrates the database while CloudFormation deploys, and creates API keys on request.

CloudFormation waits for an answer at an address in its event, and rolls the stack back if there is
none. If an invocation dies, Lambda invokes it again; upgrading and answering may happen twice.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import httpx
import psycopg
import structlog
from forge_schema.access.api_keys import Keys
from forge_schema.database.migrate import NewerDatabase, upgrade
from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Role
from forge_schema.program.log import configure_log
from mangum.types import LambdaContext
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

# CloudFormation never deletes one resource and creates another because of a changed name.
NAME = "database"
# It takes 4 KiB in all.
LONGEST_REASON = 1_000
ANSWER_S = 20.0
# What is left of an invocation, in seconds, when a migration is ended to answer in time.
RESERVED_S = 30.0
APPLICATION = "forge-setup"
END = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database()
"""

log = structlog.get_logger(__name__)


class WantedKey(BaseModel):
    """An event of somebody who may invoke this function: create an API key."""

    owner: str = Field(min_length=1)
    role: Role = Role.ADMIN


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str] | None:
    """Serve CloudFormation, or create an API key and return it."""
    configure_log("json", sys.stdout)
    url = os.environ["FORGE_DATABASE_URL"]
    if "RequestType" not in event:
        return create_key(url, WantedKey.model_validate(event))
    # What the stack leaves behind, the database or its snapshot, is kept as it is.
    deletes = event["RequestType"] == "Delete"
    left_s = context.get_remaining_time_in_millis() / 1_000
    reason = "" if deletes else migrate(url, left_s - RESERVED_S)
    answer(event, reason)
    return None


def create_key(url: str, wanted: WantedKey) -> dict[str, str]:
    """Create a key of this owner and role."""
    with Database(url, size=1, prepare=False) as database:
        key_id, text = Keys(database, actor="setup").create(wanted.owner, wanted.role)
    log.info("key_created", key=key_id, owner=wanted.owner, role=wanted.role.value)
    return {"key": text}


def migrate(url: str, within_s: float) -> str:
    """Upgrade the database; return why that failed, or an empty text."""
    name = f"{APPLICATION}-{os.urandom(4).hex()}"
    with ended_after(url, name, within_s) as ended:
        try:
            upgrade(f"{url}{'&' if '?' in url else '?'}application_name={name}")
        except NewerDatabase as error:
            # A rollback: the servers that it brings back work with the newer tables.
            log.warning("database_is_newer", message=error.message)
        except (psycopg.Error, SQLAlchemyError, ForgeError) as error:
            log.exception("migration_failed")
            return explained(error, ended=ended.is_set())
    log.info("migrated")
    return ""


@contextmanager
def ended_after(url: str, name: str, seconds: float) -> Iterator[Event]:
    """End the sessions of this name after some seconds; yield whether that happened.

    A function that runs out of time is frozen, and its session would keep its locks.
    """
    done, ended = Event(), Event()

    def watch() -> None:
        # Again, since a migration has several transactions, and sessions may follow.
        wait_s = seconds
        while not done.wait(wait_s):
            ended.set()
            wait_s = 1.0
            with suppress(psycopg.Error), psycopg.connect(url, connect_timeout=5) as connection:
                connection.execute(END, [name])

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        done.set()
        thread.join()


def explained(error: Exception, *, ended: bool) -> str:
    """Return what went wrong and what to do, for the events of the stack."""
    message = str(error).strip().partition("\n")[0]
    if ended:
        return (
            "The migration took longer than a function may run. What was unfinished is undone."
            " Run `forge db upgrade` from where the database can be reached, and deploy again."
        )
    if "certificate" in message:
        message += " (is the zip built with LAMBDA_ARGS='--ca global-bundle.pem'?)"
    return f"The database could not be migrated: {message}"


def answer(event: dict[str, Any], reason: str) -> None:
    """Tell CloudFormation how it went.

    Raises:
        httpx.HTTPError: it was not told; Lambda invokes the function again.
    """
    same = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    document = {
        **same,
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason[:LONGEST_REASON],
        "PhysicalResourceId": NAME,
    }
    body = json.dumps(document).encode()
    httpx.put(event["ResponseURL"], content=body, timeout=ANSWER_S).raise_for_status()

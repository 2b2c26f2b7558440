"""The function that migrates the database as a stack is deployed, and makes the first API key."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from unittest.mock import patch

import httpx
import psycopg
import pytest
from forge_functions.handlers import setup
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys
from forge_schema.access.tokens import TokenKind
from forge_schema.database.current import is_current
from forge_schema.database.pool import Database
from pydantic import ValidationError
from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
MINUTES = 900.0


class Stack:
    """CloudFormation, as a function meets it: it sends events, and takes answers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.database = NOWHERE
        self.status = 200
        self.answers: list[dict[str, str]] = []

    def ask(self, kind: str, left_s: float = MINUTES) -> dict[str, str]:
        """Ask for one change, and return the answer."""
        event = {
            "RequestType": kind,
            "ResponseURL": self._url,
            "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/forge/1",
            "RequestId": f"request-{len(self.answers)}",
            "LogicalResourceId": "Migration",
        }
        assert self.call(event, left_s) is None
        answer = self.answers[-1]
        assert answer["RequestId"] == event["RequestId"]
        assert answer["PhysicalResourceId"] == setup.NAME
        return answer

    def call(self, event: dict[str, str], left_s: float = MINUTES) -> dict[str, str] | None:
        """Invoke the function."""
        with patch.dict(os.environ, FORGE_DATABASE_URL=self.database):
            return setup.handler(event, Left(left_s))  # type: ignore[arg-type]  # a part of it


class Left:
    """What is left of an invocation."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1_000)


@contextmanager
def taking_answers() -> Iterator[Stack]:
    made: list[Stack] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            # S3 would refuse it: the address is signed for a request without.
            assert "Content-Type" not in self.headers
            made[0].answers.append(json.loads(body))
            self.send_response(made[0].status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its base's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.append(Stack(f"http://127.0.0.1:{server.server_port}/answer?signed=1"))
    with answering(server):
        yield made[0]


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setattr(setup, "configure_log", lambda *_: None)
    with taking_answers() as made:
        yield made


def test_a_stack_migrates_its_database_however_often_it_is_asked(
    stack: Stack, empty_database_url: str
) -> None:
    stack.database = empty_database_url
    assert stack.ask("Create")["Status"] == "SUCCESS"
    assert is_current(empty_database_url)
    # CloudFormation was not told, so Lambda calls again.
    stack.status = 500
    with pytest.raises(httpx.HTTPStatusError):
        stack.ask("Update")
    stack.status = 200
    assert stack.ask("Update")["Status"] == "SUCCESS"
    assert is_current(empty_database_url)


def test_a_rollback_leaves_a_newer_database_as_it_is(stack: Stack, database_url: str) -> None:
    stack.database = database_url
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("COMMENT ON VIEW job_status IS 'of the newer version'")
    assert stack.ask("Update")["Status"] == "SUCCESS"
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT obj_description('job_status'::regclass)").fetchone()
    assert found == ("of the newer version",)


def test_a_database_that_is_away_fails_the_deployment_with_the_reason(
    stack: Stack,
) -> None:
    answer = stack.ask("Create")
    assert answer["Status"] == "FAILED"
    assert "127.0.0.1" in answer["Reason"]
    assert stack.ask("Delete")["Status"] == "SUCCESS", "a stack must be deletable without it"


def test_a_migration_that_takes_too_long_is_ended_and_holds_nothing(
    stack: Stack, database_url: str
) -> None:
    stack.database = database_url
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x666F726765])
        answer = stack.ask("Update", setup.RESERVED_S + 0.2)
        assert answer["Status"] == "FAILED"
        assert "forge db upgrade" in answer["Reason"]
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ %s"
        assert other.execute(sessions, [f"^{setup.APPLICATION}"]).fetchone() == (0,)
    assert stack.ask("Update")["Status"] == "SUCCESS"


def test_the_reason_names_a_zip_without_the_databases_authority() -> None:
    error = psycopg.OperationalError("SSL error: certificate verify failed")
    assert "--ca global-bundle.pem" in setup.explained(error, ended=False)


def test_a_caller_of_the_function_gets_an_api_key(stack: Stack, database_url: str) -> None:
    stack.database = database_url
    made = stack.call({"owner": "ann"})
    assert made is not None
    token = tokens.parse(made["key"], TokenKind.KEY)
    with Database(database_url) as database:
        row = Keys(database, actor="user:root").check(token)
    assert row is not None
    assert (row["owner"], row["role"]) == ("ann", "admin")
    with pytest.raises(ValidationError):
        stack.call({"owner": ""})
    assert stack.answers == []

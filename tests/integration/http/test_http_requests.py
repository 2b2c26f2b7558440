"""Around every request: ids, bounds on bodies, methods, one shape for every error."""

from __future__ import annotations

import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
import structlog
from forge_functions.middleware import requests
from forge_functions.routes import guarded_route
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.quantities import size_text
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Role
from forge_schema.program.log import configure_log
from forge_schema.protocol import messages
from pydantic import ValidationError
from support.http.api import SPEC, Api, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK = "/api/v1/queue/check"


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // 65_536):
        yield b" " * 65_536


def test_every_answer_has_its_own_id_and_is_not_cached(shared_api: Api) -> None:
    answers = [shared_api.http.get(path) for path in ("/health", "/health", "/none")]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 3
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.parametrize("announced", [True, False])
def test_a_large_body_is_refused_however_it_comes(shared_api: Api, announced: bool) -> None:  # noqa: FBT001  a case
    limit = shared_api.services.settings.body_limit_bytes
    headers = {**shared_api.key().headers, "Content-Type": "application/json"}
    body = b" " * (limit + 1) if announced else pieces(2 * limit)
    answer = shared_api.http.post(CHECK, headers=headers, content=body)
    assert size_text(limit) in problem(answer, 413, "too_large")


def test_a_body_that_does_not_come_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PIECE_WITHIN_S", 0.3)
    address = urlsplit(api.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 30) as slow:
        head = (
            f"POST {CHECK} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            f"Authorization: {api.key().headers['Authorization']}\r\nContent-Length: 100\r\n\r\n{{"
        )
        slow.sendall(head.encode())
        answer = slow.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"too_slow"' in answer


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b'{"jobs": []}', 422),
        (b'{"jobs": [[]]}', 422),
        (b'{"\\ud800": 1}', 422),
        (b'{"jobs": [{"\\ud800": 1}]}', 422),
        (b"[" * 100_000, 400),
        (b"\xff\xfe{", 400),
        (b'{"jobs": "\xff"}', 400),
        (b'{"jobs": ' + b"1" * 5000 + b"}", 400),
    ],
    ids=range(12),
)
def test_an_invalid_body_is_refused(shared_api: Api, body: bytes, status: int) -> None:
    headers = {**shared_api.key().headers, "Content-Type": "application/json"}
    problem(shared_api.http.post(CHECK, headers=headers, content=body), status, "invalid")


def test_nobody_has_a_body_parsed(shared_api: Api) -> None:
    for path in (CHECK, "/api/v1/admin/keys", "/api/v1/workers/heartbeat"):
        headers = {"Content-Type": "application/json"}
        answer = shared_api.http.post(path, headers=headers, content=b"{")
        problem(answer, 401, "unauthenticated")


def test_other_requests_are_answered_while_a_body_is_parsed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = Event(), Event()

    def slowly(body: bytes) -> object:
        began.set()
        assert go_on.wait(60)
        return json.loads(body)

    monkeypatch.setattr(guarded_route, "json", SimpleNamespace(loads=slowly))
    ann = api.key()
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(ann.call, "POST", CHECK, {"jobs": [SPEC]})
        try:
            assert began.wait(60)
            assert api.http.get("/health").is_success
        finally:
            go_on.set()
        assert checked.result().is_success


def test_objects_of_very_many_fields_are_refused_unread(shared_api: Api) -> None:
    many = {f"k{n}": 1 for n in range(10_001)}
    answer = shared_api.key().call("POST", CHECK, {"jobs": [many]})
    assert "more than 10000 fields" in problem(answer, 400, "invalid")


def test_unknown_fields_are_refused_by_few_names_and_the_one_that_was_meant(
    shared_api: Api,
) -> None:
    many = {f"k{n}": 1 for n in range(1000)}
    job = {**SPEC, "worker_labels": {"zone": "eu"}, **many}
    said = problem(shared_api.key().call("POST", CHECK, {"jobs": [job]}), 422, "invalid")
    assert "worker_labels: unknown field; did you mean labels?" in said
    assert said.count("unknown field") == 5
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(job)
    assert refused.value.error_count() == 5
    beat = {"leases": [{"jobid": 1}] * 1000}
    with pytest.raises(ValidationError) as refused:
        messages.Heartbeat.model_validate(beat)
    assert refused.value.error_count() < 10


@pytest.mark.parametrize(
    "path", ["/api/v1/workers/heartbeat", "/api/v1/bundles", "/api/v1/admin/keys"]
)
def test_short_orders_have_short_bodies(shared_api: Api, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = shared_api.http.post(path, headers=headers, content=b" " * ((64 << 10) + 1))
    assert "64 KiB" in problem(answer, 413, "too_large")


def test_a_body_of_another_type_is_refused(shared_api: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        headers = {**shared_api.key().headers, "Content-Type": kind}
        problem(shared_api.http.post(CHECK, headers=headers, content=b"{}"), 422, "invalid")
    headers = {**shared_api.key().headers, "Content-Encoding": "gzip"}
    answer = shared_api.http.post(CHECK, headers=headers, content=gzip.compress(b"{}"))
    assert "send the body uncompressed" in problem(answer, 415, "refused")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/health", "GET"),
        ("PATCH", "/api/v1/admin/workers", "GET, POST"),
        ("POST", "/api/v1/queue/templates/a", "DELETE, GET, PUT"),
        ("OPTIONS", "/api/v1/admin/workers/1", "DELETE"),
    ],
)
def test_another_method_is_told_which_there_are(
    shared_api: Api, method: str, path: str, allowed: str
) -> None:
    answer = shared_api.http.request(method, path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/none", "/api", "/api/v1/workers/", "/api/v1/queue/jobs/1/none", "//"]
)
def test_an_unknown_path_is_answered_with_404(shared_api: Api, path: str) -> None:
    problem(httpx.get(shared_api.url + path, timeout=60), 404, "not_found")


@pytest.mark.parametrize("path", ["/api/queue/submit", "/queue/submit"])
def test_a_path_without_its_version_is_told_the_whole_one(shared_api: Api, path: str) -> None:
    response = shared_api.http.post(path, json=SPEC)
    problem(response, 404, "not_found")
    assert response.json()["hint"] == "did you mean /api/v1/queue/submit?"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/queue/jobs/" + "9" * 5000,
        "/api/v1/queue/jobs/1%00",
        "/api/v1/queue/jobs?count=0",
        "/api/v1/queue/jobs?owner=%00",
        "/api/v1/queue/jobs?state=lost",
        "/api/v1/queue/jobs?colour=red",
        "/api/v1/queue/jobs?before=1e400",
        "/api/v1/queue/templates/%00",
        "/api/v1/queue/templates/" + "n" * 201,
        "/api/v1/reports/%00",
        "/api/v1/admin/events?after=-99999999999999999999",
        "/api/v1/admin/events?since_s=99999999999",
        "/api/v1/admin/events?actor=",
    ],
)
def test_what_cannot_be_is_refused_and_no_fault_of_the_server(shared_api: Api, path: str) -> None:
    problem(shared_api.key("root", Role.ADMIN).call("GET", path), 422, "invalid")


@pytest.mark.parametrize("handle", ["0", "-1", "9223372036854775808", "x"])
def test_a_job_that_cannot_be_is_unknown(shared_api: Api, handle: str) -> None:
    admin = shared_api.key("root", Role.ADMIN)
    problem(admin.call("GET", f"/api/v1/queue/jobs/{handle}"), 404, "job_unknown")


def test_a_fault_of_the_server_gives_nothing_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise ZeroDivisionError("SELECT secret FROM api_key")

    monkeypatch.setattr("forge_schema.read.jobs.Jobs.job", broken)
    log = StringIO()
    # As a real server logs.
    configure_log("json", log)
    try:
        answer = api.key().call("GET", "/api/v1/queue/jobs/1")
    finally:
        structlog.reset_defaults()
    assert "secret" not in problem(answer, 500, "internal")
    assert answer.json()["request_id"] in log.getvalue()
    assert "ZeroDivisionError: SELECT secret" in log.getvalue()


def test_a_database_that_goes_away_is_no_fault_of_the_callers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object, **_more: object) -> None:
        raise DatabaseUnreachable("the database db.internal:5432/forge does not answer")

    ann = api.key()
    monkeypatch.setattr("forge_schema.database.pool.Database.rows", away)
    answer = ann.call("GET", "/api/v1/queue/jobs")
    assert "db.internal" not in problem(answer, 503, "database_unreachable")
    assert answer.headers["retry-after"] == "5"

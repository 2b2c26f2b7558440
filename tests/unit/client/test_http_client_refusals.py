"""The meaning of each server answer: exit code, message, and whether to retry."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, cast

import httpx
import pytest
from forge_client.errors import ClientError
from forge_client.http import shells, transport
from forge_client.http.errors import Retryable, loss, refusal
from forge_client.http.transport import retried
from websockets.exceptions import InvalidMessage

PLACE = "https://forge.example"


def answered(status: int, body: object = None, **headers: str) -> ClientError | Retryable:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return refusal(httpx.Response(status, content=content, headers=headers), PLACE)


def problem(code: str = "some_code", **changes: str) -> dict[str, str]:
    return {"code": code, "message": "it is so", "hint": "do this", "request_id": "abc", **changes}


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [(400, 2), (401, 7), (403, 7), (404, 3), (405, 1), (409, 4), (413, 2), (422, 2), (500, 1),
     (507, 1)],
)  # fmt: skip
def test_a_refusal_is_the_servers_words_and_an_exit_code(status: int, exit_code: int) -> None:
    error = answered(status, problem())
    assert isinstance(error, ClientError)
    assert (error.message, error.code, error.exit_code) == ("it is so", "some_code", exit_code)
    assert "do this" in error.hint


def test_a_field_is_called_as_the_caller_wrote_it() -> None:
    said = "body.jobs.0.stall.silent_log_s: Input should be greater than 0; body.jobs.0.grace_s: no"
    error = answered(422, problem("invalid", message=said))
    assert isinstance(error, ClientError)
    assert error.message == ("stall.silent_log: must be greater than 0; grace: no")
    hint = "/openapi.json describes each path"
    error = answered(422, problem("invalid", message="query.state: must be 'sent'", hint=hint))
    assert isinstance(error, ClientError)
    assert (error.message, error.hint) == ("state: must be 'sent'", "")


def test_a_server_that_hangs_up_on_plain_http_may_speak_tls() -> None:
    hung_up = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    for url, https in (("http://forge.example", True), (PLACE, False)):
        lost = loss(hung_up, url)
        assert isinstance(lost, Retryable)
        assert ("write https://" in lost.error.hint) is https


def test_a_servers_own_fault_tells_the_request_by_which_its_log_is_searched() -> None:
    error = answered(500, problem())
    assert isinstance(error, ClientError)
    assert error.hint.endswith("abc")


@pytest.mark.parametrize(
    ("status", "unsure"), [(429, False), (502, True), (503, True), (504, True)]
)
@pytest.mark.parametrize("body", [problem(), b"<html>", {"message": "Too Many Requests"}])
def test_what_may_pass_is_told_as_that(status: int, unsure: bool, body: object) -> None:  # noqa: FBT001  a parameter
    passing = answered(status, body, **{"Retry-After": "7"})
    assert isinstance(passing, Retryable)
    assert (passing.unsure, passing.after_s, passing.error.exit_code) == (unsure, 7.0, 5)


def test_too_many_wrong_keys_are_not_tried_again() -> None:
    error = answered(429, problem("too_many_failures"), **{"Retry-After": "60"})
    assert isinstance(error, ClientError)
    assert error.exit_code == 7


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (405, "method_not_allowed")])
def test_a_path_that_the_server_does_not_know_is_told(status: int, code: str) -> None:
    error = answered(status, problem(code))
    assert isinstance(error, ClientError)
    assert (error.code, error.exit_code) == ("path_unknown", 6)
    assert PLACE in error.message


def test_a_hint_about_headers_is_for_programs() -> None:
    error = answered(401, problem(hint="send the header `Authorization: Bearer …`"))
    assert isinstance(error, ClientError)
    assert "FORGE_API_KEY" in error.hint


@pytest.mark.parametrize("status", [401, 403, 413])
def test_what_stands_between_is_told_in_our_words(status: int) -> None:
    error = answered(status, b"<html>")
    assert isinstance(error, ClientError)
    assert f"HTTP {status}" in error.message
    assert error.code == "refused"
    assert error.hint


@pytest.mark.parametrize("status", [404, 418, 500, 599])
def test_what_speaks_otherwise_is_no_forge(status: int) -> None:
    error = answered(status, b"<html>", **{"Content-Type": "text/html; charset=utf-8"})
    assert isinstance(error, ClientError)
    assert (error.code, error.exit_code) == ("not_forge", 6)
    assert error.message.endswith(f"HTTP {status}, text/html")


class Clock:
    """A clock that a pause moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, pause: float) -> None:
        self.pauses.append(pause)
        self.now += pause


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(transport, "time", clock)
    return clock


class Trying:
    """Fails the given number of times, then answers."""

    def __init__(self, failures: int, *, unsure: bool = False, after_s: float = 0) -> None:
        self.tries = 0
        self._failures, self._unsure, self._after_s = failures, unsure, after_s

    def __call__(self) -> str:
        self.tries += 1
        if self.tries > self._failures:
            return "done"
        error = ClientError("away", exit_code=5)
        raise Retryable(error, unsure=self._unsure, after_s=self._after_s)


def test_pauses_grow_to_a_limit_and_end_with_the_patience(clock: Clock) -> None:
    trying = Trying(10_000)
    with pytest.raises(ClientError, match=r"^away$"):
        retried(trying, patience_s=lambda: 60)
    assert clock.now <= 60
    assert trying.tries == len(clock.pauses) + 1
    assert max(clock.pauses) <= transport.LONGEST_PAUSE_S
    assert all(later > sooner / 2 for sooner, later in pairwise(clock.pauses))
    assert clock.pauses[0] <= transport.FIRST_PAUSE_S


def test_a_server_that_names_its_time_is_waited_for(clock: Clock) -> None:
    assert retried(Trying(1, after_s=9), patience_s=lambda: 20) == "done"
    assert clock.pauses == [9]
    trying = Trying(1, after_s=30)
    with pytest.raises(ClientError, match="away"):
        retried(trying, patience_s=lambda: 20)
    assert trying.tries == 1


def test_what_may_have_taken_effect_is_repeated_only_where_that_is_harmless(clock: Clock) -> None:
    assert retried(Trying(3, unsure=True), patience_s=lambda: 20) == "done"
    assert retried(Trying(3, unsure=False), patience_s=lambda: 20, again=False) == "done"
    trying = Trying(1, unsure=True)
    with pytest.raises(ClientError, match="it is unknown whether") as caught:
        retried(trying, patience_s=lambda: 20, again=False)
    assert (caught.value.code, caught.value.exit_code, trying.tries) == ("answer_lost", 5, 1)
    assert len(clock.pauses) == 6


@pytest.mark.parametrize("hangs_up", [0, 1, 2, 3])
def test_a_server_that_hangs_up_is_asked_again(
    hangs_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "PAUSES_S", (0, 0))
    connection, tries = object(), []

    def connecting() -> Any:  # noqa: ANN401  stands for a connection
        tries.append(1)
        if len(tries) <= hangs_up:
            raise InvalidMessage("did not receive a valid HTTP response")
        return connection

    if hangs_up == 3:
        with pytest.raises(InvalidMessage):
            shells._opened(connecting)
    else:
        assert shells._opened(connecting) is cast("Any", connection)
    assert len(tries) == min(hangs_up + 1, 3)

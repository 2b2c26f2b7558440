"""How the worker interprets a server's answers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.http_client import tls_context
from forge_schema.model.errors import ForgeError
from forge_schema.queue.queue import WorkerUnknown
from forge_schema.storage import StoreUnreachable
from forge_worker.circuit_breaker import (
    CircuitOpen,
    NotAnswered,
    QueueRefused,
    Servers,
    ServerUnreachable,
)
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.session import (
    LeaseUnknown,
    ServerFailed,
    ServerRefused,
    Session,
    TokenRefused,
    checked,
)
from structlog.testing import capture_logs
from support.workers.attempts import some_grant

if TYPE_CHECKING:
    from collections.abc import Iterator


def answer(status: int, code: str = "", **headers: str) -> httpx.Response:
    """Make an answer, in the server's shape unless it has no code."""
    if not code:
        return httpx.Response(status, text="<html>", headers=headers)
    body = {"code": code, "message": "why", "hint": "so", "request_id": "abc"}
    return httpx.Response(status, json=body, headers=headers)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(401, "unauthenticated"), TokenRefused),
        (answer(401, "signature_invalid"), TokenRefused),
        (answer(409, "worker_unknown"), WorkerUnknown),
        (answer(404, "lease_unknown"), LeaseUnknown),
        (answer(404, "object_unknown"), ServerRefused),
        (answer(404), ServerRefused),
        (answer(422, "invalid"), ServerRefused),
        (answer(307), ServerRefused),
        (answer(503, "store_unreachable"), StoreUnreachable),
        (answer(503, "store_error"), StoreUnreachable),
        (answer(500, "internal"), ServerFailed),
    ],
    ids=str,
)
def test_an_answer_of_a_server_that_is_there(said: httpx.Response, kind: type[ForgeError]) -> None:
    # Not NotAnswered: the server must not be left alone for it, since renewals go through it too.
    with pytest.raises(kind) as error:
        checked(said)
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("said", "sent", "rest_s"),
    [
        (answer(503, "database_unreachable", **{"Retry-After": "5"}), True, 5.0),
        (answer(502), True, 0.0),
        (answer(504), True, 0.0),
        (answer(500), True, 0.0),
        (answer(408, "too_slow"), True, 0.0),
        (answer(429, "too_many_failures", **{"Retry-After": "60"}), False, 60.0),
        (answer(429, **{"Retry-After": "soon"}), False, 0.0),
        (answer(503, **{"Retry-After": "999999"}), True, 300.0),
    ],
    ids=str,
)
def test_an_invalid_answer_is_an_outage(said: httpx.Response, rest_s: float, *, sent: bool) -> None:
    with pytest.raises(NotAnswered) as error:
        checked(said)
    assert (error.value.sent, error.value.rest_s) == (sent, rest_s)


def test_what_is_waited_for_is_as_the_database() -> None:
    assert issubclass(ServerFailed, DatabaseUnreachable)
    assert issubclass(TokenRefused, DatabaseUnreachable)
    assert not issubclass(ServerRefused, DatabaseUnreachable)


class Tokens:
    """Where a token is read, which may fail."""

    def __init__(self) -> None:
        self.now: str | None = "first"

    def read(self) -> str:
        if self.now is None:
            raise ForgeError("gone")
        return self.now


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def session(tokens: Tokens) -> Iterator[Session]:
    made = Session(Servers(["http://x"], longest_pause_s=1), tokens.read, tls_context())
    yield made
    made.close()


def test_a_token_that_was_refused_is_not_shown_again_soon(session: Session, tokens: Tokens) -> None:
    assert session.token() == "first"
    session._refused("first", inf, TokenRefused("x"))
    with pytest.raises(TokenRefused):
        session.token()
    tokens.now = "second"
    assert session.token() == "second"
    # The late answer concerned the previous token.
    session._refused("first", inf, TokenRefused("x"))
    assert session.token() == "second"


def test_a_token_whose_file_is_gone_is_waited_for(session: Session, tokens: Tokens) -> None:
    assert session.token() == "first"
    session._refused("first", inf, TokenRefused("x"))
    tokens.now = None
    with pytest.raises(TokenRefused):
        session.token()
    tokens.now = "second"
    assert session.token() == "second"


def test_a_thinning_that_is_not_answered_in_time_lets_no_server_rest(session: Session) -> None:
    asked: list[str] = []

    def late(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ReadTimeout("too long", request=request)

    session.client.close()
    session.client = httpx.Client(transport=httpx.MockTransport(late))
    fence, gateway = some_grant().fence, HttpGateway(session)
    with pytest.raises(ServerUnreachable):
        gateway.thin_checkpoints(fence, 5, everywhere=True)
    (server,) = session.servers._servers
    server.check()
    with pytest.raises(ServerUnreachable):
        gateway.latest_checkpoint(fence.job_id)
    with pytest.raises(CircuitOpen):
        server.check()
    assert len(asked) == 2


def test_refused_token_is_shown_less_and_less_and_logged_once(tokens: Tokens) -> None:
    now, shown = 1000.0, list[str]()
    refused = {"first", "second"}

    def judge(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers["X-Worker-Token"])
        said = answer(401, "unauthenticated") if shown[-1] in refused else None
        return said or httpx.Response(200, json={"checkpoint": None})

    session = Session(
        Servers(["http://x"], longest_pause_s=1), tokens.read, tls_context(), clock=lambda: now
    )
    session.client.close()
    session.client = httpx.Client(transport=httpx.MockTransport(judge))
    gateway = HttpGateway(session)
    session.servers.refusals.met()
    with capture_logs() as said:
        for _ in range(3600):
            # Loops do not log it either.
            with pytest.raises(CircuitOpen):
                gateway.latest_checkpoint(1)
            now += 0.5
        assert 14 <= len(shown) <= 40
        assert session.servers.refusals.why == "the server refuses this worker's token"
        # The first is due again when it is replaced.
        now += 3600
        tokens.now = "second"
        for _ in range(20):
            with pytest.raises(TokenRefused):
                gateway.latest_checkpoint(1)
        assert shown.count("second") == 1
        tokens.now = "third"
        gateway.latest_checkpoint(1)
        # What began before a refusal, such as a stream, does not end it.
        session._refused("third", now, TokenRefused("x"))
        session._turns.answered(now - 1)
        assert session.servers.refusals.why == "x"
        session._turns.answered(now)
    assert shown[-1] == "third"
    assert session.servers.refusals.why == ""
    assert [one["event"] for one in said] == 2 * ["queue_refuses", "queue_accepts"]
    session.close()


def test_server_with_an_untrusted_certificate_is_refused_unless_another_answers() -> None:
    def ask(url: str) -> str:
        if url != "http://good":
            raise NotAnswered("its certificate is not trusted: x", sent=False, refused=True)
        return url

    servers = Servers(["http://bad", "http://good"], longest_pause_s=1)
    assert servers.ask(ask) == "http://good"
    assert servers.refusals.why == "its certificate is not trusted: x"
    with pytest.raises(QueueRefused, match="no answer from http://bad: its certificate") as error:
        Servers(["http://bad"], longest_pause_s=1).ask(ask)
    assert "--tls-ca" in error.value.hint

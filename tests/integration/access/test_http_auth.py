"""Authentication: API keys, short-lived tokens, signed requests, and the limit on wrong secrets."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

import jwt
import pytest
from forge_functions.auth.failures import LIMIT
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.model.states import Role
from support.http.api import bearer, problem

if TYPE_CHECKING:
    from support.http.api import Api, Caller, Signer

ME = "/api/me"
HEARTBEAT = "/api/workers/heartbeat"
NOBODY: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Basic YW5uOnB3"},
    bearer("fgk_"),
    bearer("fgk_a_b_c"),
    bearer("a.b.c"),
    bearer("\u00ff" * 40),
    bearer(tokens.mint(TokenKind.WORKER, "1")[0]),
    bearer(tokens.mint(TokenKind.KEY, "nobody")[0]),
    bearer("e" * 5000),
)


def refused(caller: Caller) -> str:
    return problem(caller.call("GET", ME), 401, "unauthenticated")


@pytest.mark.parametrize("headers", NOBODY, ids=range(len(NOBODY)))
def test_nobody_comes_in(shared_api: Api, headers: dict[str, str]) -> None:
    coded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = shared_api.http.get(ME, headers=coded)
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_says_who_calls(api: Api) -> None:
    ann = api.key("ann", Role.VIEWER)
    assert ann.get(ME) == {"owner": "ann", "role": "viewer", "actor": f"key:{ann.key_id}"}


def test_a_key_that_is_over_is_over_at_once(api: Api) -> None:
    rotated, revoked, expired = api.key(), api.key(), api.key(lasts=timedelta(hours=1))
    for caller in (rotated, revoked, expired):
        caller.get(ME)
    api.keys.rotate(rotated.key_id)
    api.keys.revoke(revoked.key_id)
    api.rig.clock.advance(3600)
    for caller in (rotated, revoked, expired):
        refused(caller)


def test_wrong_secrets_are_limited_and_the_right_one_passes(api: Api) -> None:
    ann = api.key("ann")
    wrong = api.caller(bearer(tokens.mint(TokenKind.KEY, ann.key_id)[0]))
    for _ in range(LIMIT):
        refused(wrong)
    answer = wrong.call("GET", ME)
    problem(answer, 429, "too_many_failures")
    assert 0 < int(answer.headers["retry-after"]) <= 60
    ann.get(ME)


def test_wrong_tokens_do_not_keep_a_worker_out(api: Api) -> None:
    worker_id, text = api.workers.create("w")
    register = {"X-Worker-Token": text}
    wrong = {"X-Worker-Token": tokens.mint(TokenKind.WORKER, str(worker_id))[0]}
    for _ in range(LIMIT):
        problem(api.caller(wrong).call("POST", HEARTBEAT, {}), 401, "unauthenticated")
    problem(api.caller(wrong).call("POST", HEARTBEAT, {}), 429, "too_many_failures")
    problem(api.caller(register).call("POST", HEARTBEAT, {}), 422, "invalid")


def test_replays_and_a_wrong_clock_do_not_lock_a_signing_key(api: Api) -> None:
    signer = api.signing_key()
    late = str(int(api.rig.clock.now.timestamp()) - 301)
    spent = signer.signed("GET", ME)
    assert api.http.get(ME, headers=spent).is_success
    for _ in range(LIMIT):
        for headers in (spent, signer.signed("GET", ME, timestamp=late), signer.headers):
            problem(api.http.get(ME, headers=headers), 401, "unauthenticated")
    assert signer.get(ME)["owner"] == "ann"


def token(caller: Caller) -> Caller:
    made = caller.post("/api/token")
    assert made["expires_in_s"] == 900
    return caller.api.caller(bearer(made["token"]))


def test_a_token_may_do_what_its_key_may_until_it_expires(api: Api) -> None:
    ann = api.key("ann", Role.VIEWER)
    short = token(ann)
    assert short.get(ME) == ann.get(ME)
    api.rig.clock.advance(899)
    short.get(ME)
    api.rig.clock.advance(1)
    refused(short)
    ann.get(ME)


@pytest.mark.parametrize("end", ["rotate", "revoke", "expire"])
def test_a_token_ends_with_its_key(api: Api, end: str) -> None:
    ann = api.key(lasts=timedelta(seconds=60))
    short = token(ann)
    match end:
        case "rotate":
            fresh = api.keys.rotate(ann.key_id)
            token(api.caller(bearer(fresh))).get(ME)
        case "revoke":
            api.keys.revoke(ann.key_id)
        case "expire":
            api.rig.clock.advance(60)
    refused(short)


def test_a_token_makes_no_token(api: Api) -> None:
    answer = token(api.key()).call("POST", "/api/token", {})
    assert "API key" in problem(answer, 403, "forbidden")


def claims(api: Api, short: Caller) -> dict[str, object]:
    text = short.headers["Authorization"].removeprefix("Bearer ")
    assert api.services.settings.server_secret.get_secret_value() not in text
    told: dict[str, object] = jwt.decode(text, options={"verify_signature": False})
    return told


def test_a_forged_token_is_none(api: Api) -> None:
    ann = api.key("ann", Role.ADMIN)
    said = claims(api, token(ann))
    secret = api.services.settings.server_secret.get_secret_value()
    forged = [jwt.encode(said, key, "HS256") for key in (secret, "x" * 32)]
    forged.append(jwt.encode(said, "", "none"))
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
    forged.append(".".join((head, forged[0].split(".")[1], "")))
    for text in forged:
        refused(api.caller(bearer(text)))


def test_a_token_that_nests_deeper_than_the_stack_is_none(api: Api) -> None:
    parts = ('{"alg":"HS256"}', "[" * 5000, "x")
    deep = ".".join(base64.urlsafe_b64encode(p.encode()).decode().rstrip("=") for p in parts)
    refused(api.caller(bearer(deep)))


@pytest.fixture
def signer(api: Api) -> Signer:
    return api.signing_key()


def test_a_signed_request_is_taken_once(api: Api, signer: Signer) -> None:
    headers = signer.signed("GET", ME)
    assert api.http.get(ME, headers=headers).json()["owner"] == "ann"
    assert "already used" in problem(api.http.get(ME, headers=headers), 401, "unauthenticated")
    assert api.rig.count("request_nonce") == 1


def test_a_key_that_signs_has_to(api: Api, signer: Signer) -> None:
    unsigned = api.caller(signer.headers)
    assert "signed" in refused(unsigned)
    short = signer.post("/api/token")["token"]
    assert "signed" in refused(api.caller(bearer(short)))
    signer.headers = bearer(short)
    assert signer.get(ME)["owner"] == "ann"


def test_what_is_signed_is_all_that_the_server_acts_on(signer: Signer) -> None:
    body = {"jobs": [{"name": "\u00e9", "command": ["true"], "env": {"A": "b"}}]}
    assert signer.post("/api/queue/submit", body)["job_ids"]
    assert signer.get("/api/queue/jobs?count=1&owner=ann&state=ready&state=running")["items"]
    assert signer.call("PUT", "/api/queue/templates/a%20b%2Fc", {"spec": {}}).is_success
    assert signer.get("/api/queue/templates/a%20b%2Fc?owner=a%6En")["name"] == "a b/c"


def nonces(signer: Signer) -> int:
    """Count a key's accepted requests."""
    seen = "SELECT 1 FROM request_nonce WHERE key_id = %s"
    return len(signer.api.rig.rows(seen, signer.key_id))


@pytest.mark.parametrize("part", ["method", "path", "query", "body", "timestamp", "nonce", "key"])
def test_what_was_altered_is_refused(shared_api: Api, part: str) -> None:
    signer = shared_api.signing_key()
    body = b'{"job_ids": [1]}'
    path = "/api/queue/statuses"
    headers = signer.signed("POST", path, body)
    match part:
        case "method":
            headers = signer.signed("PUT", path, body)
        case "path":
            headers = signer.signed("POST", "/api/queue/check", body)
        case "query":
            path += "?all=1"
        case "body":
            body = b'{"job_ids": [2]}'
        case "timestamp":
            headers["X-Forge-Timestamp"] = str(int(headers["X-Forge-Timestamp"]) + 1)
        case "nonce":
            headers["X-Forge-Nonce"] = secrets.token_urlsafe(16)
        case "key":
            other = shared_api.signing_key("ann")
            headers = {**other.signed("POST", path, body), **signer.headers}
    headers["Content-Type"] = "application/json"
    answer = shared_api.http.post(path, headers=headers, content=body)
    assert "does not match" in problem(answer, 401, "unauthenticated")
    assert nonces(signer) == 0


@pytest.mark.parametrize(("seconds", "ok"), [(-301, 0), (-300, 1), (300, 1), (301, 0)])
def test_a_signature_is_good_for_five_minutes(shared_api: Api, seconds: int, ok: int) -> None:
    signer = shared_api.signing_key()
    timestamp = str(int(shared_api.rig.clock.now.timestamp()) + seconds)
    answer = shared_api.http.get(ME, headers=signer.signed("GET", ME, timestamp=timestamp))
    assert answer.is_success == ok
    assert nonces(signer) == ok


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Forge-Timestamp", "now"),
        ("X-Forge-Timestamp", "9" * 13),
        ("X-Forge-Timestamp", "\u0661" * 10),
        ("X-Forge-Nonce", "short"),
        ("X-Forge-Nonce", "n" * 65),
        ("X-Forge-Nonce", "space in between it"),
        ("X-Forge-Signature", ""),
        ("X-Forge-Signature", "!" * 88),
        ("X-Forge-Signature", base64.b64encode(b"short").decode()),
    ],
)
def test_a_malformed_signature_is_refused(shared_api: Api, header: str, value: str) -> None:
    headers = {**shared_api.signing_key().signed("GET", ME), header: value}
    coded = [(name.encode(), text.encode()) for name, text in headers.items()]
    problem(shared_api.http.get(ME, headers=coded), 401, "unauthenticated")


def test_a_nonce_is_taken_by_each_key_for_itself(api: Api, signer: Signer) -> None:
    other = api.signing_key("bob")
    for caller in (signer, other):
        nonce = "n" * 16
        assert api.http.get(ME, headers=caller.signed("GET", ME, nonce=nonce)).is_success
    api.rig.clock.advance(901)
    api.rig.tick.run()
    assert api.rig.count("request_nonce") == 0

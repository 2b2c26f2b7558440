"""Authentication: API keys, short-lived tokens, and the limit on wrong secrets."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import jwt
import pytest
from forge_functions.middleware.failures import LIMIT
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.model.states import Role
from support.http.api import bearer, problem

if TYPE_CHECKING:
    from support.http.api import Api, Caller

ME = "/api/v1/me"
HEARTBEAT = "/api/v1/workers/heartbeat"
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
    told = {"owner": "ann", "role": "viewer", "actor": f"key:{ann.key_id}", "sees": ["ann"]}
    assert ann.get(ME) == told


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


def token(caller: Caller) -> Caller:
    made = caller.post("/api/v1/token")
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
    answer = token(api.key()).call("POST", "/api/v1/token", {})
    assert "API key" in problem(answer, 403, "forbidden")


def claims(api: Api, short: Caller) -> dict[str, object]:
    text = short.headers["Authorization"].removeprefix("Bearer ")
    assert api.services.settings.server_secret.get_secret_value() not in text
    told: dict[str, object] = jwt.decode(text, options={"verify_signature": False})
    return told


def test_a_forged_token_is_refused(api: Api) -> None:
    ann = api.key("ann", Role.ADMIN)
    said = claims(api, token(ann))
    secret = api.services.settings.server_secret.get_secret_value()
    forged = [jwt.encode(said, key, "HS256") for key in (secret, "x" * 32)]
    forged.append(jwt.encode(said, "", "none"))
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
    forged.append(".".join((head, forged[0].split(".")[1], "")))
    for text in forged:
        refused(api.caller(bearer(text)))


def test_a_token_that_nests_deeper_than_the_stack_is_refused(api: Api) -> None:
    parts = ('{"alg":"HS256"}', "[" * 5000, "x")
    deep = ".".join(base64.urlsafe_b64encode(p.encode()).decode().rstrip("=") for p in parts)
    refused(api.caller(bearer(deep)))

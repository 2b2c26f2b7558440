"""Bearer tokens of an issuer: their users, their rights, and an issuer that is down."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from forge_schema.model.states import Role
from pydantic import ValidationError
from support.http.api import Api, bearer, opened, problem
from support.http.issuer import AUDIENCE, Issuer, issuing
from support.http.server import server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig

ME = "/api/v1/me"
WRONG: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "somebody-else"},
    "no audience": {"aud": None},
    "over": {"exp": datetime.now(UTC) - timedelta(minutes=5)},
    "without end": {"exp": None},
    "not yet": {"nbf": datetime.now(UTC) + timedelta(days=1)},
    "nobody's": {"sub": None},
    "another issuer": {"iss": "https://elsewhere.example"},
    "no issuer": {"iss": None},
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def trusting(rig: Rig, tmp_path: Path, issuer: Issuer) -> Iterator[Api]:
    with trusts(rig, tmp_path, issuer) as api:
        yield api


@contextmanager
def trusts(rig: Rig, folder: Path, issuer: Issuer, **settings: Any) -> Iterator[Api]:  # noqa: ANN401  fields of all types
    given = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, **settings}
    with opened(rig, folder / "store", **given) as api:
        yield api


@pytest.mark.parametrize("kid", ["rsa", "ec"])
def test_a_token_says_who_calls(trusting: Api, issuer: Issuer, kid: str) -> None:
    ann = trusting.caller(bearer(issuer.token(kid)))
    told = {"owner": "ann", "role": "submitter", "actor": "oidc:ann", "sees": ["ann"]}
    assert ann.get(ME) == told
    job = ann.submit()
    assert trusting.rig.jobs.job(job)["owner"] == "ann"
    assert trusting.rig.jobs.events(job)[0]["actor"] == "oidc:ann"
    assert "API key" in problem(ann.call("POST", "/api/v1/token"), 403, "forbidden")


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_token_that_is_not_for_us_is_refused(
    trusting: Api, issuer: Issuer, claims: dict[str, Any]
) -> None:
    wrong = trusting.caller(bearer(issuer.token(**claims)))
    problem(wrong.call("GET", ME), 401, "unauthenticated")


def test_a_token_that_the_issuer_did_not_sign_is_refused(trusting: Api, issuer: Issuer) -> None:
    with issuing() as other:
        foreign = other.token(iss=issuer.url)
    public = issuer.rsa.public_key().public_numbers().n.to_bytes(256)
    claims = jwt.decode(foreign, options={"verify_signature": False})
    confused = jwt.encode(claims, public, "HS256", headers={"kid": "rsa"})
    unsigned = jwt.encode(claims, "", "none", headers={"kid": "rsa"})
    for text in (foreign, confused, unsigned):
        problem(trusting.caller(bearer(text)).call("GET", ME), 401, "unauthenticated")


def test_what_a_person_made_follows_what_the_issuer_says_now(trusting: Api, issuer: Issuer) -> None:
    path = "/api/v1/queue/notifications"
    admin = trusting.caller(bearer(issuer.token(forge_role="admin")))
    kept = {"kind": "email", "target": "ann@example.com", "everyone": True}
    assert admin.call("PUT", f"{path}/ops", kept).status_code == 200
    assert admin.get(path)["items"][0]["withheld"] is None
    ann = trusting.caller(bearer(issuer.token()))
    assert "has the role submitter now" in ann.get(path)["items"][0]["withheld"]
    problem(ann.call("POST", "/api/v1/queue/test-notification/ops"), 409, "notification_withheld")
    nobody = trusting.caller(bearer(issuer.token(forge_role="guests")))
    problem(nobody.call("GET", path), 403, "forbidden")
    (kept,) = trusting.key("root", Role.ADMIN).get(path)["items"]
    assert kept["withheld"].endswith("the login of ann, which made it, has ended")


def test_without_an_issuer_no_token_is_taken(api: Api, issuer: Issuer) -> None:
    problem(api.caller(bearer(issuer.token())).call("GET", ME), 401, "unauthenticated")
    assert issuer.asked == []


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ({"forge_role": "root"}, "forge_role"),
        ({"forge_role": None}, "forge_role"),
        ({"forge_role": 7}, "forge_role"),
        ({"forge_role": []}, "forge_role"),
        ({"sub": "a" * 201}, "sub"),
        ({"sub": "a\0b"}, "sub"),
        ({"sub": ""}, "sub"),
    ],
)
def test_a_token_without_a_role_or_an_owner_here_may_nothing(
    trusting: Api, issuer: Issuer, claims: dict[str, Any], named: str
) -> None:
    answer = trusting.caller(bearer(issuer.token(**claims))).call("GET", ME)
    assert named in problem(answer, 403, "forbidden")


def test_the_settings_map_an_issuers_words(rig: Rig, tmp_path: Path, issuer: Issuer) -> None:
    roles = {"ml-team": "submitter", "ml-ops": "admin"}
    with trusts(
        rig,
        tmp_path,
        issuer,
        oidc_owner_claim="https://a.example/team",
        oidc_role_claim="realm_access.roles",
        oidc_roles=roles,
    ) as api:
        for words, role in ((["x", "ml-team"], "submitter"), (["ml-team", "ml-ops"], "admin")):
            team: dict[str, Any] = {
                "https://a.example/team": "vision",
                "realm_access": {"roles": words},
            }
            caller = api.caller(bearer(issuer.token(**team)))
            told = {"owner": "vision", "role": role, "actor": "oidc:ann"}
            sees = None if role == "admin" else ["vision"]
            assert caller.get(ME) == {**told, "sees": sees}
        ours: dict[str, Any] = {
            "https://a.example/team": "vision",
            "realm_access": {"roles": ["admin"]},
        }
        problem(api.caller(bearer(issuer.token(**ours))).call("GET", ME), 403, "forbidden")


def test_the_issuers_keys_are_asked_for_once(trusting: Api, issuer: Issuer) -> None:
    for _ in range(3):
        trusting.caller(bearer(issuer.token())).get(ME)
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]
    issuer.answers.clear()
    trusting.caller(bearer(issuer.token("ec"))).get(ME)


ABOUT = "/.well-known/openid-configuration"
BROKEN: dict[str, dict[str, Any]] = {
    "away": {ABOUT: None},
    "no JSON": {ABOUT: b"<html>"},
    "somebody else": {ABOUT: {"issuer": "https://a.example"}},
    "a list": {ABOUT: []},
    "no place for keys": {ABOUT: {"issuer": "OURS"}},
    "keys in a file": {ABOUT: {"issuer": "OURS", "jwks_uri": "file:///etc/passwd"}},
    "no keys": {"/keys": {"keys": []}},
    "keys cut short": {"/keys": b"{"},
    "keys away": {"/keys": None},
}


@pytest.mark.parametrize("answers", BROKEN.values(), ids=BROKEN)
def test_an_issuer_that_cannot_be_asked_is_no_ones_fault(
    trusting: Api, issuer: Issuer, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({k: v for k, v in answers.items() if not isinstance(v, bytes)})
    issuer.answers |= answers | json.loads(text.replace("OURS", issuer.url))
    ann = trusting.caller(bearer(issuer.token()))
    answer = ann.call("GET", ME)
    message = problem(answer, 503, "issuer_unreachable")
    assert issuer.url not in message
    assert answer.headers["retry-after"]
    asked = list(issuer.asked)
    issuer.publish()
    # The issuer is not asked again for a while, so that callers need not wait for it.
    problem(ann.call("GET", ME), 503, "issuer_unreachable")
    assert issuer.asked == asked
    monkeypatch.setattr(trusting.services.issuer.tokens, "_rests_until", 0.0)
    assert ann.get(ME)["owner"] == "ann"


def test_an_issuer_needs_an_audience() -> None:
    with pytest.raises(ValidationError, match="oidc_audience"):
        server_settings("postgresql://x", "file:///x", oidc_issuer="https://a.example")

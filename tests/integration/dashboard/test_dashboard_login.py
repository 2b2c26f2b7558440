"""Login to the dashboard: sessions, how they end, and logins that fail."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from forge_functions.middleware.failures import LIMIT
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.model.states import Role
from support.http.api import bearer
from support.http.guest import Guest, link

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from support.http.api import Api

HALF_A_DAY = 43_200


@pytest.fixture
def guest(api: Api) -> Iterator[Guest]:
    guest = Guest(api)
    yield guest
    guest.close()


def key(api: Api, role: Role = Role.SUBMITTER, lasts: timedelta | None = None) -> tuple[str, str]:
    return api.keys.create("ann", role, lasts=lasts)


def is_out(guest: Guest, path: str = "/queues") -> bool:
    """Tell whether a guest has no session: a page leads to the login, and a part says so."""
    answer, part = guest.http.get(path), guest.http.get(f"{path}?part=rows")
    if answer.status_code == 200 and part.status_code == 200:
        return False
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fqueues"
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/login")
    return True


def cookie(answer: httpx.Response) -> tuple[str, dict[str, str]]:
    """Return the name of the cookie that an answer sets, and its attributes."""
    first, *rest = answer.headers["set-cookie"].split("; ")
    said = {part.partition("=")[0].lower(): part.partition("=")[2] for part in rest}
    return first.partition("=")[0], said


def acts(api: Api, action: str) -> list[dict[str, object]]:
    rows = api.rig.rows("SELECT actor, detail FROM event WHERE action = %s ORDER BY id", action)
    return [{"actor": row["actor"], **row["detail"]} for row in rows]


def test_a_key_begins_a_session_and_logout_ends_it_everywhere(api: Api, guest: Guest) -> None:
    assert is_out(guest)
    key_id, text = key(api)
    answer = guest.send_key(f" {text}\n", to="/queues?after=a")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues?after=a")
    name, said = cookie(answer)
    assert name == f"forge_{urlsplit(api.url).port}"
    assert said == {
        "httponly": "", "max-age": str(HALF_A_DAY), "path": "/", "samesite": "lax"
    }  # fmt: skip
    assert text not in answer.headers["set-cookie"]
    assert "ann" in guest.page("/queues")
    stolen = dict(guest.http.cookies)
    assert guest.act("/logout").headers["location"] == "/login"
    assert name not in guest.http.cookies
    guest.http.cookies.update(stolen)
    assert is_out(guest)
    (login,) = acts(api, "login")
    seen = {"actor": f"key:{key_id}", "session": login["session"]}
    assert login == {**seen, "address": "127.0.0.1"}
    assert acts(api, "logout") == [seen]


@pytest.mark.parametrize("end", ["lapse", "rotate", "revoke", "expire"])
def test_a_session_is_over_at_once(api: Api, guest: Guest, end: str) -> None:
    key_id, text = key(api, lasts=timedelta(hours=6) if end == "expire" else None)
    guest.send_key(text)
    match end:
        case "lapse":
            api.rig.clock.advance(HALF_A_DAY - 1)
            assert not is_out(guest)
            api.rig.clock.advance(1)
        case "rotate":
            api.keys.rotate(key_id)
        case "revoke":
            api.keys.revoke(key_id)
        case "expire":
            api.rig.clock.advance(6 * 3600)
    assert is_out(guest)


def test_nothing_else_is_a_session_and_a_session_is_nothing_else(api: Api, guest: Guest) -> None:
    ann = api.key("ann", Role.ADMIN)
    name = f"forge_{urlsplit(api.url).port}"
    short = ann.post("/api/v1/token")["token"]
    path = link(api, ann.headers["Authorization"].removeprefix("Bearer "))
    for text in (short, path.partition("link=")[2], "a.b.c", "\u00ff", ""):
        guest.http.cookies.set(name, text.encode("latin-1").decode("ascii", "ignore"))
        assert is_out(guest)
    guest.http.cookies.clear()
    guest.login("ann", Role.ADMIN)
    session = guest.http.cookies[name]
    assert api.http.get("/api/v1/me", headers=bearer(session)).status_code == 401
    # A bearer token opens no page: the actions on pages are protected for cookies only.
    assert api.http.get("/queues", headers=ann.headers).status_code == 303


def test_wrong_keys_are_refused_told_and_limited(api: Api, guest: Guest) -> None:
    key_id, right = key(api)
    wrong = tokens.mint(TokenKind.KEY, key_id)[0]
    for _ in range(LIMIT):
        answer = guest.send_key(wrong)
        assert answer.status_code == 401
        assert "This is not a valid API key." in answer.text
        assert wrong not in answer.text
    assert guest.send_key(wrong).status_code == 429
    for text in ("", "fgk_", "x" * 500, tokens.mint(TokenKind.WORKER, "1")[0]):
        assert guest.send_key(text).status_code == 401
    told = acts(api, "login_refused")
    assert len(told) == LIMIT, "a flood of them does not fill the trail"
    said = {"actor": "anonymous", "key": key_id, "why": "wrong", "address": "127.0.0.1"}
    assert told[0] == said
    assert not guest.http.cookies
    assert guest.send_key(right).status_code == 303


def test_a_key_that_signs_does_not_log_in(api: Api, guest: Guest) -> None:
    signer = api.signing_key()
    answer = guest.send_key(signer.headers["Authorization"].removeprefix("Bearer "))
    assert answer.status_code == 401
    assert "requires signed requests" in answer.text
    assert signer.call("POST", "/login/link").status_code == 403
    assert [told["why"] for told in acts(api, "login_refused")] == ["signs"]


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\r\nX: y", ""]
)
def test_a_login_leads_nowhere_else(shared_api: Api, to: str) -> None:
    guest = Guest(shared_api)
    assert guest.send_key(key(shared_api)[1], to=to).headers["location"] == "/"
    guest.close()


def test_the_cookie_is_secure_wherever_there_is_tls(shared_api: Api) -> None:
    guest = Guest(shared_api, **{"X-Forwarded-Proto": "https"})
    name, said = cookie(guest.send_key(key(shared_api)[1]))
    assert name == "__Host-forge"
    assert {"secure", "httponly"} <= set(said)
    guest.close()


def test_no_key_is_taken_in_the_clear(shared_api: Api) -> None:
    guest = Guest(shared_api, Host="forge.example")
    text = key(shared_api)[1]
    answer = guest.http.post(
        "/login", data={"key": text}, headers={"Origin": "http://forge.example"}
    )
    assert answer.status_code == 401
    assert "Without TLS" in answer.text
    assert "set-cookie" not in answer.headers
    assert "Without TLS" in guest.http.get("/login").text
    guest.close()


def test_a_link_logs_in_once_and_soon(api: Api, guest: Guest) -> None:
    key_id, text = key(api, Role.ADMIN)
    path = link(api, text)
    token = parse_qs(urlsplit(path).query)["link"][0]
    # Programs that follow links in a chat do not use one up.
    for _ in range(2):
        assert token in guest.page(path)
    assert guest.form("/login", link=token).status_code == 303
    assert not is_out(guest)
    again = Guest(api)
    assert "already used" in again.form("/login", link=token).text
    late = parse_qs(urlsplit(link(api, text)).query)["link"][0]
    api.rig.clock.advance(61)
    assert again.form("/login", link=late).status_code == 401
    revoked = parse_qs(urlsplit(link(api, text)).query)["link"][0]
    api.keys.revoke(key_id)
    assert again.form("/login", link=revoked).status_code == 401
    again.close()
    assert api.http.post("/login/link").status_code == 401

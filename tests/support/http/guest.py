"""A browser from the server's point of view: cookies, forms, an origin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx
from forge_schema.http_client import challenge_of
from support.http.api import bearer

if TYPE_CHECKING:
    from forge_schema.model.states import Role
    from support.http.api import Api
    from support.http.issuer import Issuer

FIELD = re.compile(r'name="(port|state|challenge)" value="([^"]+)"')
CODE = re.compile(r'<pre id="code">([0-9a-f-]{40,})</pre>')
TOKEN = re.compile(r'"X-CSRF-Token": "([0-9a-f]{64})"')


class Guest:
    """Opens pages; sends requests from the server's own origin unless told otherwise."""

    def __init__(self, api: Api, **headers: str) -> None:
        self.api = api
        # The server may close an idle connection just as the client uses it again.
        fresh = httpx.Limits(max_keepalive_connections=0)
        given = {"Accept": "text/html", **headers}
        self.http = httpx.Client(base_url=api.url, timeout=60, headers=given, limits=fresh)
        self.key_id = ""

    def login(self, owner: str, role: Role, **sees: Any) -> Guest:  # noqa: ANN401  as of a key
        """Log in with a new key."""
        self.key_id, text = self.api.keys.create(owner, role, **sees)
        answer = self.send_key(text)
        assert answer.status_code == 303, answer.text
        return self

    def sign_on(self, issuer: Issuer, **claims: Any) -> Guest:  # noqa: ANN401  claims of all types
        """Log in at the issuer that the server trusts."""
        begun = self.http.get("/login/sso")
        answer = self.http.get(issuer.authorized(begun.headers["location"], **claims))
        assert answer.status_code == 303, answer.text
        return self

    def send_key(self, text: str, to: str = "/") -> httpx.Response:
        """Send the login form."""
        return self.form("/login", key=text, next=to)

    def page(self, path: str) -> str:
        """Return a page that must exist."""
        answer = self.http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.text

    def token(self) -> str:
        """Return the token that every form of this session sends."""
        found = TOKEN.search(self.page("/queues"))
        assert found is not None
        return found[1]

    def act(self, path: str, **fields: str) -> httpx.Response:
        """Send a form of one of this session's pages."""
        return self.form(path, csrf=self.token(), **fields)

    def form(self, path: str, **fields: str) -> httpx.Response:
        """Send a form from this server's origin."""
        return self.http.post(path, data=fields, headers={"Origin": self.api.url})

    def allow(self, page: str) -> httpx.Response:
        """Allow `forge login` to act for this session, on the page that the command names."""
        parts = urlsplit(page)
        asked = dict(FIELD.findall(self.page(f"{parts.path}?{parts.query}")))
        answer = self.act("/login/terminal", **asked)
        assert answer.status_code == 200, answer.text
        return answer

    def login_code(self, verifier: str) -> str:
        """Return the code that a page of `forge login --no-browser` shows."""
        query = urlencode({"challenge": challenge_of(verifier), "state": "s" * 43})
        return shown_code(self.allow(f"/login/terminal?{query}"))

    def close(self) -> None:
        self.http.close()


def shown_code(answer: httpx.Response) -> str:
    """Return the code on a page."""
    found = CODE.search(answer.text)
    assert found is not None, answer.text
    return found[1]


def link(api: Api, key: str) -> str:
    """Return the login link that `forge dashboard` requests."""
    answer = api.http.post("/login/link", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    path: str = answer.json()["path"]
    return path

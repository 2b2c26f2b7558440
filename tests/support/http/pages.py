"""The dashboard without a browser: log in by a key, open pages and send their forms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
from forge_schema.model.states import Role

if TYPE_CHECKING:
    from support.http.api import Api

CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


class Reader:
    """A browser without JavaScript."""

    def __init__(self, api: Api, role: Role = Role.ADMIN, owner: str = "root") -> None:
        self.http = httpx.Client(
            base_url=api.url, timeout=60, headers={"Origin": api.url, "Accept": "text/html"}
        )
        _, key = api.keys.create(owner, role)
        answer = self.http.post("/login", data={"key": key})
        assert answer.status_code == httpx.codes.SEE_OTHER, answer.text

    def page(self, path: str, status: int = 200) -> str:
        """Return a page's text."""
        answer = self.http.get(path)
        assert answer.status_code == status, f"{path}: {answer.status_code}: {answer.text[:2000]}"
        return answer.text

    def post(self, path: str, *, shown: str = "/workers", **fields: str) -> httpx.Response:
        """Send a form with the token from a page."""
        found = CSRF.search(self.page(shown))
        assert found is not None, f"there is no form on {shown}"
        return self.http.post(path, data={"csrf": found[1], **fields})

    def close(self) -> None:
        """Close the browser."""
        self.http.close()

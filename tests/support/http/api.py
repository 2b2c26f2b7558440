"""The HTTP functions under test: a real server on the test's queue, and its callers."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.states import Role
from support.http.server import quick_app, server_settings, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path

    from fastapi import FastAPI
    from forge_functions.services import Services
    from support.queue.rig import Rig

JSON = "application/json"
# The forms of signed requests.
SPEC = {
    "name": "job",
    "command": ["true"],
    "resources": {"cpus": 1, "memory_mb": 1, "disk_mb": 1},
}


class Api:
    """A server, and the keys used to call it."""

    def __init__(self, app: FastAPI, url: str, rig: Rig) -> None:
        self.app = app
        self.url = url
        self.rig = rig
        self.services: Services = app.state.services
        self.keys = Keys(rig.database, actor="user:root")
        self.workers = WorkerTokens(rig.database, actor="user:root")
        self.http = httpx.Client(base_url=url, timeout=60)

    def key(
        self,
        owner: str = "ann",
        role: Role = Role.SUBMITTER,
        lasts: timedelta | None = None,
        **sees: Any,  # noqa: ANN401  a team, or everyone
    ) -> Caller:
        """Create a key and return a caller that uses it."""
        key_id, text = self.keys.create(owner, role, lasts=lasts, **sees)
        return Caller(self, bearer(text), key_id)

    def signing_key(self, owner: str = "ann", role: Role = Role.SUBMITTER) -> Signer:
        """Create a key that requires signed requests."""
        private = Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        key_id, text = self.keys.create(owner, role, public_key=public)
        return Signer(self, bearer(text), key_id, private)

    def signing_worker(self, name: str = "w") -> Signer:
        """Create a worker that must sign its requests."""
        private = Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        worker_id, text = self.workers.create(name, public_key=public)
        headers = {"X-Worker-Token": text}
        return Signer(self, headers, f"worker:{worker_id}", private)

    def caller(self, headers: dict[str, str] | None = None) -> Caller:
        """Return a caller that sends these headers."""
        return Caller(self, headers or {}, "")


class Caller:
    """A client with credentials."""

    def __init__(self, api: Api, headers: dict[str, str], key_id: str) -> None:
        self.api = api
        self.headers = headers
        self.key_id = key_id

    def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request, with `body` as JSON unless it is None."""
        headers, content = self.headers, b""
        if body is not None:
            # Unlike httpx's own encoder, this also sends JSON that no caller must send.
            headers, content = {**headers, "Content-Type": JSON}, json.dumps(body).encode()
        return self.api.http.request(method, path, headers=headers, content=content)

    def get(self, path: str) -> Any:  # noqa: ANN401  whatever JSON holds
        """Send a GET request and return the answer."""
        return good(self.call("GET", path))

    def post(self, path: str, body: object = None) -> Any:  # noqa: ANN401  as above
        """Post a body and return the answer."""
        return good(self.call("POST", path, {} if body is None else body))

    def submit(self, **changes: Any) -> int:  # noqa: ANN401  fields of all types
        """Submit one job."""
        answer = self.post("/api/v1/queue/submit", {"jobs": [{**SPEC, **changes}]})
        job_id: int = answer["job_ids"][0]
        return job_id


class Signer(Caller):
    """A client that signs its requests as docs/http-api.md describes, without our own library."""

    def __init__(
        self, api: Api, headers: dict[str, str], key_id: str, private: Ed25519PrivateKey
    ) -> None:
        super().__init__(api, headers, key_id)
        self.private = private

    def signed(self, method: str, path: str, body: bytes = b"", **said: str) -> dict[str, str]:
        """Return a request's headers; `said` may set the timestamp and nonce."""
        timestamp = said.get("timestamp") or str(int(self.api.rig.clock.now.timestamp()))
        nonce = said.get("nonce") or secrets.token_urlsafe(16)
        digest = f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
        covered = (
            '("@method" "@path" "@query" "content-digest")'
            f';created={timestamp};keyid="mine";nonce="{nonce}";tag="forge"'
        )
        at, _, query = path.partition("?")
        base = (
            f'"@method": {method}\n"@path": {at}\n"@query": ?{query}\n'
            f'"content-digest": {digest}\n"@signature-params": {covered}'
        )
        signature = base64.b64encode(self.private.sign(base.encode())).decode()
        return {
            **self.headers,
            "Content-Digest": digest,
            "Signature-Input": f"forge={covered}",
            "Signature": f"forge=:{signature}:",
        }

    def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        request = self.api.http.build_request(method, path, json=body)
        request.headers.update(self.signed(method, canonical(str(request.url)), request.content))
        return self.api.http.send(request)


@contextmanager
def opened(
    rig: Rig,
    store: Path | str,
    **settings: Any,  # noqa: ANN401  fields of all types
) -> Iterator[Api]:
    """Serve a rig's queue and a store given by URL or folder; `settings` are the server's."""
    store_url = store if isinstance(store, str) else store.as_uri()
    app = quick_app(server_settings(rig.url, store_url, **settings))
    if not settings:
        # New connections would plan every statement anew, which takes longer than most requests.
        app.state.services._open = rig.served
    with serving(app) as url:
        api = Api(app, url, rig)
        with api.http:
            yield api


def canonical(url: str) -> str:
    """Return a URL's path and query in the form in which they are signed."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return quote(unquote(parts.path)) + (f"?{query}" if query else "")


def bearer(text: str) -> dict[str, str]:
    """Return the header for a key or a token."""
    return {"Authorization": f"Bearer {text}"}


def good(answer: httpx.Response) -> Any:  # noqa: ANN401  whatever JSON holds
    """Return the body of a successful answer."""
    assert answer.is_success, f"{answer.status_code}: {answer.text}"
    return answer.json()


def problem(answer: httpx.Response, status: int, code: str) -> str:
    """Check that an answer is an error in the common format, and return its message."""
    said = answer.json()
    assert (answer.status_code, said.get("code")) == (status, code), answer.text
    assert set(said) >= {"code", "message", "hint", "request_id"}
    assert answer.headers["x-request-id"] == said["request_id"] != ""
    message: str = said["message"]
    return message

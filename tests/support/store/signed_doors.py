"""Two stores behind signed URLs: S3 that verifies them, and the server's own files."""

from __future__ import annotations

import hashlib
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import httpx
from forge_schema.model.stored import SignedUrl
from forge_schema.storage import Store, open_store
from forge_schema.storage.signed import ServerSigner, Signer, open_signer
from support.http.server import served, server_settings
from support.store.verifying_proxy import Verifier, verifying_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.store.storage import Bucket

LASTS_S = 900
# Never queried: the holder of a URL needs no database.
NO_DATABASE = "postgresql://nobody@127.0.0.1:1/none"


class Door(Protocol):
    """A store behind signed URLs; `store` accesses it directly."""

    store: Store

    @property
    def signer(self) -> Signer:
        """The key that the server signs with."""

    def aged(self, seconds: float) -> Signer:
        """Return a signer whose URLs were signed this long ago."""

    def foreign(self) -> Signer:
        """Return a signer with another secret."""

    def refusal(self, answer: httpx.Response) -> str:
        """Return the error code of an answer."""


@dataclass
class S3Door:
    """A bucket behind the proxy `verifier`."""

    store: Store
    url: str
    verifier: Verifier

    @property
    def signer(self) -> Signer:
        return open_signer(self.url, secret=b"", base_url="", lasts_s=LASTS_S)

    def aged(self, seconds: float) -> Signer:
        self.verifier.ahead = timedelta(seconds=seconds)
        return self.signer

    def foreign(self) -> Signer:
        self.verifier.secret = "another"  # noqa: S105  of no account
        return self.signer

    def refusal(self, answer: httpx.Response) -> str:
        return answer.text.removeprefix("<Code>").removesuffix("</Code>")


@dataclass
class ServerDoor:
    """A folder behind forge-server at `base_url`."""

    store: Store
    base_url: str
    secret: bytes

    @property
    def signer(self) -> Signer:
        return open_signer(
            self.store.url, secret=self.secret, base_url=self.base_url, lasts_s=LASTS_S
        )

    def aged(self, seconds: float) -> Signer:
        return ServerSigner(
            self.secret,
            base_url=self.base_url,
            lasts_s=LASTS_S,
            clock=lambda: time.time() - seconds,
        )

    def foreign(self) -> Signer:
        return replace(self, secret=b"another").signer

    def refusal(self, answer: httpx.Response) -> str:
        assert answer.headers["X-Request-Id"] == answer.json()["request_id"]
        return str(answer.json()["code"])


@contextmanager
def s3_door(bucket: Bucket) -> Iterator[S3Door]:
    """Put a verifying proxy in front of a bucket."""
    with verifying_proxy(bucket.endpoint) as verifier:
        yield S3Door(open_store(bucket.url()), bucket.url(verifier.url), verifier)


@contextmanager
def server_door(store_url: str) -> Iterator[ServerDoor]:
    """Serve a file store."""
    secret = secrets.token_hex(32)
    with served(server_settings(NO_DATABASE, store_url, server_secret=secret)) as base_url:
        yield ServerDoor(open_store(store_url), base_url, secret.encode())


@dataclass(frozen=True)
class Request:
    """A prepared request, which a test may change before sending it."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes = b""
    chunked: bool = False

    @classmethod
    def of(cls, signed: SignedUrl, content: bytes = b"") -> Request:
        return cls(signed.method, signed.url, signed.headers, content)

    def send(self) -> httpx.Response:
        content = iter([self.content]) if self.chunked else self.content
        return httpx.request(
            self.method, self.url, headers=self.headers, content=content, timeout=60
        )

    def rewritten(self, old: str, new: str) -> Request:
        """Change the URL, which must contain the old text."""
        assert old in self.url
        return replace(self, url=self.url.replace(old, new, 1))

    def headed(self, **headers: str | None) -> Request:
        """Change headers, named with underscores; None removes an existing one."""
        changed = dict(self.headers)
        for name, value in headers.items():
            word = next((h for h in changed if h.lower() == name.replace("_", "-")), None)
            if value is None:
                assert word
                del changed[word]
            else:
                changed[word or name.replace("_", "-")] = value
        return replace(self, headers=changed)


def put(signer: Signer, key: str, content: bytes, *, if_absent: bool = False) -> Request:
    """Sign a PUT of this content."""
    digest = hashlib.sha256(content).hexdigest()
    return Request.of(
        signer.put(key, size=len(content), sha256=digest, if_absent=if_absent), content
    )


def get(signer: Signer, key: str) -> Request:
    """Sign a GET."""
    return Request.of(signer.get(key))

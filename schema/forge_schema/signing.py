"""Sign requests by RFC 9421 with Ed25519: the profile of all sides, and the senders' half of it."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx

from forge_schema.model.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Generator, MutableMapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TAG = "forge"
INPUT = "Signature-Input"
COVERED = ("@method", "@path", "@query", "content-digest")
NONCE_BYTES = 16
# Proxies rewrite schemes and hosts, so neither is signed; the library wants some.
ORIGIN = "https://forge"


class SigningKeyUnusable(ForgeError):
    """A file has no private key that can sign."""

    code = "signing_key_invalid"


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A request in the form that is signed; `target` is its canonical path and query."""

    method: str
    target: str
    headers: MutableMapping[str, str]

    @property
    def url(self) -> str:
        return f"{ORIGIN}{self.target}"


def canonical(path: str, query: Iterable[tuple[str, str]]) -> str:
    """Return a decoded path and query in the one encoding that is signed.

    A gateway may decode and encode them again on the way, so the form sent is not reliable.
    """
    pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query]
    return f"{quote(path)}?{'&'.join(pairs)}" if pairs else quote(path)


def target_of(request: httpx.Request) -> str:
    """Return the canonical path and query of a request."""
    return canonical(request.url.path, request.url.params.multi_items())


class Signing(httpx.Auth):
    """Signs each request as it is sent, so that a repeated one has a nonce of its own."""

    requires_request_body = True

    def __init__(self, private: Ed25519PrivateKey) -> None:
        # The library is needed only for signing.
        from http_message_signatures import HTTPMessageSigner, MappingKeyResolver  # noqa: PLC0415
        from http_message_signatures.algorithms import ED25519  # noqa: PLC0415

        self.private = private
        public = private.public_key().public_bytes_raw()
        self._key_id = base64.b64encode(public).decode()
        keys = MappingKeyResolver(public_keys={}, private_keys={self._key_id: private})
        self._signer = HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=keys)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        request.headers.update(self.headers(request, datetime.now(UTC), nonce))
        yield request

    def headers(self, request: httpx.Request, created: datetime, nonce: str) -> dict[str, str]:
        """Return the headers that sign a request whose body has been read."""
        message = SignedMessage(request.method, target_of(request), {})
        self._signer.sign(
            message,
            key_id=self._key_id,
            created=created,
            nonce=nonce,
            label=TAG,
            tag=TAG,
            covered_component_ids=COVERED,
            body=request.content,
        )
        return dict(message.headers)


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file.

    Raises:
        SigningKeyUnusable: it has no usable Ed25519 key, or the libraries are not installed.
    """
    try:
        import http_message_signatures  # noqa: F401, PLC0415 - a missing one is told here

        return _load(path.read_bytes())
    except ImportError as error:
        why = f"{error.name} is not installed"
        hint = "pip install '.[signing]' in a clone of Forge, or its wheel with [signing]"
        raise _wrong(path, why, hint) from error
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    except (ValueError, TypeError) as error:
        # TypeError: the key needs a passphrase.
        raise _wrong(path, "it contains no Ed25519 private key without a passphrase") from error


def _load(content: bytes) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    ssh = b"BEGIN OPENSSH PRIVATE KEY" in content
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    try:
        key = load(content, password=None)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("it is of another type")  # noqa: TRY004 - a value read from a file
    return key


def _wrong(path: Path, why: str, hint: str = "") -> SigningKeyUnusable:
    return SigningKeyUnusable(
        f"the signing key {path} cannot be used: {why}",
        hint=hint
        or "`openssl genpkey -algorithm ed25519` makes one; set FORGE_SIGNING_KEY_FILE to its path",
    )

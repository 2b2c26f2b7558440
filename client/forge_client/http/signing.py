"""Sign requests with Ed25519, for API keys that require it."""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx

from forge_client.errors import ClientError

FORM = "forge-v1"
NONCE_BYTES = 16


@dataclass(frozen=True)
class Signature:
    """Signs requests; each try gets a new signature, since a nonce is accepted only once."""

    sign: Callable[[bytes], bytes]

    def of(self, request: httpx.Request) -> dict[str, str]:
        """Return the headers that sign a request."""
        timestamp, nonce = str(int(time.time())), secrets.token_hex(NONCE_BYTES)
        digest = hashlib.sha256(request.content).hexdigest()
        lines = (FORM, request.method, canonical(request.url), timestamp, nonce, digest)
        said = "\n".join(lines).encode()
        return {
            "X-Forge-Timestamp": timestamp,
            "X-Forge-Nonce": nonce,
            "X-Forge-Signature": base64.b64encode(self.sign(said)).decode(),
        }


def canonical(url: httpx.URL) -> str:
    """Return path and query in the canonical form that both sides sign."""
    pairs = [f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in url.params.multi_items()]
    path = quote(url.path)
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def open_signature(path: Path | None) -> Signature | None:
    """Return a signer with the private key in a file; None without a file.

    Raises:
        ClientError: the file has no usable Ed25519 key, or `cryptography` is not installed.
    """
    if path is None:
        return None
    try:
        return Signature(_load(path.read_bytes()))
    except ImportError as error:
        why, hint = "cryptography is not installed", "pip install cryptography"
        raise _wrong(path, why, hint) from error
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    except (ValueError, TypeError) as error:
        # TypeError: the key needs a passphrase.
        raise _wrong(path, "it contains no Ed25519 private key without a passphrase") from error


def _load(content: bytes) -> Callable[[bytes], bytes]:
    # Imported here, so that the library is needed only for signing.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )

    ssh = b"BEGIN OPENSSH PRIVATE KEY" in content
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    try:
        key = load(content, password=None)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("it is of another type")  # noqa: TRY004 - a value read from a file
    return key.sign


def _wrong(path: Path, why: str, hint: str = "") -> ClientError:
    return ClientError(
        f"the signing key {path} cannot be used: {why}",
        hint=hint
        or "`openssl genpkey -algorithm ed25519` makes one; set FORGE_SIGNING_KEY_FILE to its path",
        code="signing_key_invalid",
    )

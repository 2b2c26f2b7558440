"""Sign the requests of API keys that require it, also in the form that earlier servers know."""

import base64
import hashlib
from datetime import datetime
from pathlib import Path

import httpx
from forge_schema.signing import Signing, read_signing_key, target_of

from forge_client.errors import as_client_error

OLD_FORM = "forge-v1"


class BothForms(Signing):
    """Signs by RFC 9421 and in the old form, with one nonce: the request is still accepted once."""

    def headers(self, request: httpx.Request, created: datetime, nonce: str) -> dict[str, str]:
        timestamp = str(int(created.timestamp()))
        digest = hashlib.sha256(request.content).hexdigest()
        lines = (OLD_FORM, request.method, target_of(request), timestamp, nonce, digest)
        signature = self.private.sign("\n".join(lines).encode())
        return {
            **super().headers(request, created, nonce),
            "X-Forge-Timestamp": timestamp,
            "X-Forge-Nonce": nonce,
            "X-Forge-Signature": base64.b64encode(signature).decode(),
        }


def open_signing(path: Path | None) -> Signing | None:
    """Return what signs with the private key in a file; None without a file.

    Raises:
        ClientError: the file has no usable Ed25519 key, or a library is not installed.
    """
    with as_client_error():
        return None if path is None else BothForms(read_signing_key(path))

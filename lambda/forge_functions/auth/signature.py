"""Signed requests: Ed25519 over the whole request, valid once and for five minutes."""

import base64
import binascii
import hashlib
import re
from urllib.parse import parse_qsl, quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import Request
from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError

TIMESTAMP = "X-Forge-Timestamp"
NONCE = "X-Forge-Nonce"
SIGNATURE = "X-Forge-Signature"
WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NONCE = re.compile(r"[0-9A-Za-z_-]{16,64}")


class SignatureInvalid(ForgeError):
    """The request is not signed as its key requires."""

    code = "signature_invalid"


def check(database: Database, request: Request, body: bytes, key: Row) -> None:
    """Check that a request is signed by the key's holder, recent, and not a replay.

    Raises:
        SignatureInvalid: it is not.
    """
    said = {name: request.headers.get(name, "") for name in (TIMESTAMP, NONCE, SIGNATURE)}
    if not _TIMESTAMP.fullmatch(said[TIMESTAMP]) or not _NONCE.fullmatch(said[NONCE]):
        raise _refused("requests with this key must be signed")
    text = string_to_sign(request, said[TIMESTAMP], said[NONCE], body)
    try:
        given = base64.b64decode(said[SIGNATURE], validate=True)
        Ed25519PublicKey.from_public_bytes(key["public_key"]).verify(given, text.encode())
    except (binascii.Error, ValueError, InvalidSignature) as error:
        raise _refused("the signature does not match the request") from error
    row = database.one(
        "use_nonce",
        key_id=key["id"],
        nonce=said[NONCE],
        sent=int(said[TIMESTAMP]),
        window=WINDOW_S,
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    if not row["fresh"]:
        raise _refused(f"the request was signed more than {WINDOW_S} seconds ago, or in the future")
    if not row["taken"]:
        raise _refused("this signed request was already used")


def string_to_sign(request: Request, timestamp: str, nonce: str, body: bytes) -> str:
    """Return the text that a caller signs, in UTF-8: six lines without a final newline."""
    digest = hashlib.sha256(body).hexdigest()
    lines = ["forge-v1", request.method, canonical(request), timestamp, nonce, digest]
    return "\n".join(lines)


def canonical(request: Request) -> str:
    """Return the parsed path and query in a canonical encoding.

    A gateway may decode and encode them again on the way, so the raw form is not reliable.
    """
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query]
    path = quote(request.scope["path"])
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _refused(message: str) -> SignatureInvalid:
    return SignatureInvalid(message, hint="docs/http-api.md describes how to sign requests")

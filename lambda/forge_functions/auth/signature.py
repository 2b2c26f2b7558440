"""Signed requests: Ed25519 over what the server acts on, within five minutes, each only once."""

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
    """The request is not signed as its key demands."""

    code = "signature_invalid"


def check(database: Database, request: Request, body: bytes, key: Row) -> None:
    """Let a request pass that is signed by the key's holder, recent, and seen for the first time.

    Raises:
        SignatureInvalid: it is not.
    """
    said = {name: request.headers.get(name, "") for name in (TIMESTAMP, NONCE, SIGNATURE)}
    if not _TIMESTAMP.fullmatch(said[TIMESTAMP]) or not _NONCE.fullmatch(said[NONCE]):
        raise _refused("requests with this key have to be signed")
    text = string_to_sign(request, said[TIMESTAMP], said[NONCE], body)
    try:
        given = base64.b64decode(said[SIGNATURE], validate=True)
        Ed25519PublicKey.from_public_bytes(key["public_key"]).verify(given, text.encode())
    except (binascii.Error, ValueError, InvalidSignature) as error:
        raise _refused("the signature does not fit the request") from error
    row = database.one(
        "use_nonce",
        key_id=key["id"],
        nonce=said[NONCE],
        sent=int(said[TIMESTAMP]),
        window=WINDOW_S,
    )
    assert row is not None  # noqa: S101 - the statement selects one row always
    if not row["fresh"]:
        raise _refused(f"the request was signed over {WINDOW_S} seconds ago, or is to come")
    if not row["taken"]:
        raise _refused("this signed request came before")


def string_to_sign(request: Request, timestamp: str, nonce: str, body: bytes) -> str:
    """Return what a caller signs, in UTF-8: six lines without a line end after the last."""
    digest = hashlib.sha256(body).hexdigest()
    lines = ["forge-v1", request.method, canonical(request), timestamp, nonce, digest]
    return "\n".join(lines)


def canonical(request: Request) -> str:
    """Return path and query as they were understood, in one spelling.

    A gateway may decode and encode them anew on their way, so what came is no use.
    """
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query]
    path = quote(request.scope["path"])
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _refused(message: str) -> SignatureInvalid:
    return SignatureInvalid(message, hint="docs/http-api.md says what is signed, and how")

"""Check requests that are signed by RFC 9421; each is valid once."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import Request
from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.signing import COVERED, INPUT, TAG, SignedMessage, canonical
from http_message_signatures import (
    HTTPMessageSignaturesException,
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
)
from http_message_signatures.algorithms import ED25519

WINDOW_S = 300
# A timestamp has at most 12 digits, which the database can hold.
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NONCE = re.compile(r"[0-9A-Za-z_-]{16,64}")


class SignatureInvalid(ForgeError):
    """The request is not signed as its key requires."""


class SignatureClaims(NamedTuple):
    """What a valid signature says: the time in seconds since 1970, and a nonce."""

    sent: int
    nonce: str


def check(
    database: Database, request: Request, body: bytes, *, signer: str, public_key: bytes
) -> None:
    """Check that a request is signed by the key's holder, recent, and not a replay.

    Raises:
        SignatureInvalid: it is not.
    """
    key = Ed25519PublicKey.from_public_bytes(public_key)
    claims = _read(request, body, key)
    row = database.row(
        "use_nonce", key_id=signer, nonce=claims.nonce, sent=claims.sent, window=WINDOW_S
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    if not row["fresh"]:
        raise _skewed(row["age_s"])
    if not row["taken"]:
        raise _refused("this signed request was already used")


def _read(request: Request, body: bytes, key: Ed25519PublicKey) -> SignatureClaims:
    if INPUT not in request.headers:
        raise _refused("requests with these credentials must be signed")
    message = SignedMessage(request.method, target_of(request), dict(_fields(request)))
    verifier = _Verifier(signature_algorithm=ED25519, key_resolver=_OneKey(key))
    try:
        (verified,) = verifier.verify(
            message, max_age=None, expect_tag=TAG, require_components=COVERED, body=body
        )
    except (HTTPMessageSignaturesException, ValueError) as error:
        # ValueError: there are several.
        raise _refused(f"the signature does not match the request: {error}") from error
    created, nonce = verified.parameters.get("created"), verified.nonce or ""
    if not _TIMESTAMP.fullmatch(str(created)) or not _NONCE.fullmatch(nonce):
        raise _refused("the signature needs `created`, and a `nonce` of 16 to 64 characters")
    return SignatureClaims(int(created or 0), nonce)


class _Verifier(HTTPMessageVerifier):
    """Leaves the times to the database, whose clock all servers share."""

    signature_metadata_parameters = HTTPMessageVerifier.signature_metadata_parameters - {"expires"}

    def validate_created_and_expires(self, sig_input: object, max_age: object = None) -> None:
        pass


class _OneKey(HTTPSignatureKeyResolver):
    """The key that belongs to the request's credentials, whatever id the signature gives."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:  # noqa: ARG002 - as said above
        return self._key


def _fields(request: Request) -> Mapping[str, str]:
    """Return the headers; one that was sent several times is refused with its signature."""
    return {name: ", ".join(request.headers.getlist(name)) for name in set(request.headers.keys())}


def target_of(request: Request) -> str:
    """Return the canonical path and query of a request."""
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return canonical(request.scope["path"], query)


def _skewed(age_s: float) -> SignatureInvalid:
    when = "before" if age_s > 0 else "after"
    return SignatureInvalid(
        f"the request was signed {duration_text(abs(age_s))} {when} the time of the server's"
        f" database; at most {duration_text(WINDOW_S)} is accepted",
        hint="set the clock of the machine that signed it (`timedatectl set-ntp true`), or if that"
        " is right, the database's",
    )


def _refused(message: str) -> SignatureInvalid:
    return SignatureInvalid(
        message,
        hint="set FORGE_SIGNING_KEY_FILE; docs/http-api.md describes how requests are signed",
    )

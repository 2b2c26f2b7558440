"""Tokens made from an API key or a session: JWTs with its id and no secret."""

import hashlib
import hmac
from datetime import datetime
from typing import Any

import jwt
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Row
from jwt.types import Options

from forge_functions.services import Services

ISSUER = "forge"
AUDIENCE = "forge-api"
ALGORITHM = "HS256"
PURPOSE = b"forge short-lived token"
# Times are compared with the database's clock, which all servers share.
UNTIMED: Options = {
    "verify_exp": False,
    "verify_iat": False,
    "require": ["sub", "ver", "iat", "exp"],
}


def mint(shared: Services, key: Row, ends: datetime) -> str:
    """Return a token for a row from `Keys.valid`."""
    return signed(shared, PURPOSE, AUDIENCE, key, ends)


def issuer_of(text: str) -> str | None:
    """Return the unverified issuer of a JWT; None if the text is not a JWT."""
    try:
        issuer = jwt.decode(text, options={"verify_signature": False}).get("iss")
    except (jwt.InvalidTokenError, RecursionError):
        return None
    return issuer if isinstance(issuer, str) else None


def read(shared: Services, text: str) -> Row | None:
    """Return the key or session that a token was made from; None if either is not valid."""
    claims = claims_of(shared, PURPOSE, AUDIENCE, text)
    if claims is None:
        return None
    key = Keys(shared.database, actor="anonymous").valid(claims["sub"])
    if key is None or claims["ver"] != version(key) or claims["exp"] <= key["now"].timestamp():
        return None
    return key


def signed(
    shared: Services, purpose: bytes, audience: str, key: Row, ends: datetime, **more: str
) -> str:
    """Return a token for one purpose, made from the row of a key or session."""
    claims = {
        "iss": ISSUER,
        "aud": audience,
        "sub": key["id"],
        "ver": version(key),
        "iat": key["now"],
        "exp": ends,
        **more,
    }
    return jwt.encode(claims, secret(shared, purpose), ALGORITHM)


def claims_of(shared: Services, purpose: bytes, audience: str, text: str) -> dict[str, Any] | None:
    """Return what a token of `signed` says, or None. The caller checks its times and its key."""
    try:
        return jwt.decode(
            text,
            secret(shared, purpose),
            [ALGORITHM],
            audience=audience,
            issuer=ISSUER,
            options=UNTIMED,
        )
    except (jwt.InvalidTokenError, RecursionError):
        return None


def version(key: Row) -> str:
    """Return a mark of the key's current secret."""
    # A rotated key has another hash, which invalidates tokens of the previous one.
    return hashlib.sha256(key["hash"]).hexdigest()[:16]


def secret(shared: Services, purpose: bytes) -> bytes:
    """Derive the 32-byte secret for one purpose."""
    # The same secret signs URLs: a signature of one kind must never be valid as another.
    whole = shared.settings.server_secret.get_secret_value().encode()
    return hmac.digest(whole, purpose, "sha256")

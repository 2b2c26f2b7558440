"""Short-lived tokens made from an API key: JWTs that hold the key's id and nothing of worth."""

import hashlib
import hmac
from datetime import timedelta

import jwt
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Row
from jwt.types import Options

from forge_functions.services import Services

ISSUER = "forge"
AUDIENCE = "forge-api"
ALGORITHM = "HS256"
PURPOSE = b"forge short-lived token"
# The times are compared by the database's clock, which every server shares.
UNTIMED: Options = {"verify_exp": False, "verify_iat": False, "require": ["sub", "exp", "ver"]}


def mint(shared: Services, key: Row) -> str:
    """Return a token for what `Keys.valid` answered about an API key."""
    now = key["now"]
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": key["id"],
        "ver": version(key),
        "iat": now,
        "exp": now + timedelta(seconds=shared.settings.token_lasts_s),
    }
    return jwt.encode(claims, secret(shared, PURPOSE), ALGORITHM)


def issuer_of(text: str) -> str | None:
    """Return who a JWT says has made it, which proves nothing; None for what is no JWT."""
    try:
        said = jwt.decode(text, options={"verify_signature": False}).get("iss")
    except (jwt.InvalidTokenError, RecursionError):
        return None
    return said if isinstance(said, str) else None


def read(shared: Services, text: str) -> Row | None:
    """Return the API key that a token was made from; None when either is not valid any more."""
    try:
        claims = jwt.decode(
            text,
            secret(shared, PURPOSE),
            [ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options=UNTIMED,
        )
    except jwt.InvalidTokenError:
        return None
    key = Keys(shared.database, actor="anonymous").valid(claims["sub"])
    if key is None or claims["ver"] != version(key) or claims["exp"] <= key["now"].timestamp():
        return None
    return key


def version(key: Row) -> str:
    """Return which secret of a key something was made from."""
    # A rotated key has another hash, and no token of the one before is valid.
    return hashlib.sha256(key["hash"]).hexdigest()[:16]


def secret(shared: Services, purpose: bytes) -> bytes:
    """Return the secret for one purpose, 32 bytes."""
    # The same secret signs URLs: no signature of one kind may ever pass as one of the other.
    whole = shared.settings.server_secret.get_secret_value().encode()
    return hmac.digest(whole, purpose, "sha256")

"""Login links, valid once and for a minute, for users whose key is in a terminal."""

import secrets
from datetime import timedelta

from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Row

from forge_functions.auth import short_token
from forge_functions.services import Services

AUDIENCE = "forge-login"
PURPOSE = b"forge dashboard login link"
LASTS_S = 60


def mint(shared: Services, key: Row) -> str:
    """Return a one-time login token for an API key's row from `Keys.valid`."""
    ends = key["now"] + timedelta(seconds=LASTS_S)
    return short_token.signed(shared, PURPOSE, AUDIENCE, key, ends, jti=secrets.token_urlsafe(16))


def use(shared: Services, text: str) -> Row | None:
    """Return the API key of a link and use the link up; None if it is no longer valid."""
    claims = short_token.claims_of(shared, PURPOSE, AUDIENCE, text)
    if claims is None:
        return None
    key = Keys(shared.database, actor="anonymous").valid(claims["sub"])
    if key is None or key["public_key"] is not None or claims["ver"] != short_token.version(key):
        return None
    return key if _taken(shared, claims) else None


def _taken(shared: Services, claims: dict[str, object]) -> bool:
    row = shared.database.one(
        "use_nonce",
        key_id=claims["sub"],
        nonce=claims["jti"],
        sent=claims["iat"],
        window=LASTS_S,
    )
    return row is not None and bool(row["fresh"]) and bool(row["taken"])

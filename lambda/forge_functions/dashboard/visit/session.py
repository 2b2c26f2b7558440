"""Sessions. Each request checks the session and its key, so that revocation is immediate."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import jwt
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller
from jwt.types import Options

from forge_functions.auth import short_token
from forge_functions.dashboard.visit import csrf

if TYPE_CHECKING:
    from fastapi import Request, Response
    from forge_schema.database.pool import Row

    from forge_functions.services import Services

ISSUER = "forge"
AUDIENCE = "forge-dashboard"
PURPOSE = b"forge dashboard session"
# Compared with the database's clock, which all servers share.
UNTIMED: Options = {
    "verify_exp": False,
    "verify_iat": False,
    "require": ["sub", "exp", "ver", "jti"],
}
LONG_AGO = datetime.min.replace(tzinfo=UTC)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Visitor(Caller):
    """A logged-in caller. `csrf` goes into every form; `now` is the database's time."""

    session: str = ""
    csrf: str = ""
    now: datetime = LONG_AGO
    until: datetime = LONG_AGO


def mint(shared: Services, key: Row) -> str:
    """Return a new session for an API key's row from `Keys.valid`."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": key["id"],
        "ver": short_token.version(key),
        "jti": secrets.token_urlsafe(16),
        "iat": key["now"],
        "exp": key["now"] + timedelta(seconds=shared.settings.session_lasts_s),
    }
    return jwt.encode(claims, short_token.secret(shared, PURPOSE), short_token.ALGORITHM)


def read(shared: Services, text: str) -> Visitor | None:
    """Return the visitor of a session; None if it or its key is no longer valid."""
    try:
        claims = jwt.decode(
            text,
            short_token.secret(shared, PURPOSE),
            [short_token.ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options=UNTIMED,
        )
    except (jwt.InvalidTokenError, RecursionError):
        return None
    key_id, session = claims["sub"], claims["jti"]
    key = shared.database.one("session", again=True, id=key_id, session=session)
    if key is None or key["public_key"] is not None:
        return None
    until = datetime.fromtimestamp(claims["exp"], UTC)
    if claims["ver"] != short_token.version(key) or until <= key["now"]:
        return None
    made = csrf.token(shared, session)
    owner, role = key["owner"], Role(key["role"])
    return Visitor(owner, role, f"key:{key_id}", key_id, session, made, key["now"], until)


def end(shared: Services, who: Visitor) -> None:
    """End a session for good. Idempotent."""
    shared.database.one(
        "end_session",
        again=True,
        id=who.key_id,
        session=who.session,
        until=who.until,
        actor=who.actor,
    )


def of(request: Request, shared: Services) -> Visitor | None:
    """Return the visitor who sent a request, by its cookie."""
    text = request.cookies.get(_name(request, shared), "")
    return read(shared, text) if text else None


def keep(request: Request, response: Response, shared: Services, text: str) -> None:
    """Set the session's cookie."""
    # Lax, not strict: a link in a chat or a mail should open logged in. All that a cross-site link
    # can do is read; every action is a POST, checked by token and origin.
    response.set_cookie(
        _name(request, shared),
        text,
        max_age=shared.settings.session_lasts_s,
        path="/",
        secure=secure(request, shared),
        httponly=True,
        samesite="lax",
    )


def forget(request: Request, response: Response, shared: Services) -> None:
    """Delete the session's cookie."""
    response.delete_cookie(
        _name(request, shared),
        path="/",
        secure=secure(request, shared),
        httponly=True,
        samesite="lax",
    )


def secure(request: Request, shared: Services) -> bool:
    """Tell whether the browser's request came over TLS, as far as known."""
    return request.url.scheme == "https" or shared.settings.public_url.startswith("https://")


def kept(request: Request, shared: Services) -> bool:
    """Tell whether a browser would keep the cookie: over TLS, or on this machine."""
    return secure(request, shared) or request.url.hostname in LOOPBACK


def _name(request: Request, shared: Services) -> str:
    # Browsers send cookies of one port to all ports of a host.
    return "__Host-forge" if secure(request, shared) else f"forge_{request.url.port or 80}"

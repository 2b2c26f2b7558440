"""Sessions. Each request checks the session and its key, so that their end is immediate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from forge_schema.access.api_keys import Sessions
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller

from forge_functions.auth import short_token
from forge_functions.dashboard.visit import csrf

if TYPE_CHECKING:
    from fastapi import Request, Response

    from forge_functions.services import Services

AUDIENCE = "forge-dashboard"
PURPOSE = b"forge dashboard session"
LONG_AGO = datetime.min.replace(tzinfo=UTC)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Visitor(Caller):
    """A logged-in caller. `csrf` goes into every form; `now` is the database's time."""

    csrf: str = ""
    now: datetime = LONG_AGO
    # A mark of the secret of the key that the session acts for.
    version: str = ""


def begin(shared: Services, acts_for: str, owner: str, role: Role, address: str) -> str | None:
    """Begin a session and return the text of its cookie; see `Sessions.begin`."""
    lasts = timedelta(seconds=shared.settings.session_lasts_s)
    begun = Sessions(shared.database).begin(
        acts_for, owner, role, name=f"browser at {address}", address=address, lasts=lasts
    )
    if begun is None:
        return None
    return short_token.signed(shared, PURPOSE, AUDIENCE, begun, begun["now"] + lasts)


def read(shared: Services, text: str) -> Visitor | None:
    """Return the visitor of a session; None if it or its key is no longer valid."""
    claims = short_token.claims_of(shared, PURPOSE, AUDIENCE, text)
    if claims is None:
        return None
    row = Sessions(shared.database).valid(claims["sub"])
    if row is None or claims["ver"] != short_token.version(row):
        return None
    if claims["exp"] <= row["now"].timestamp():
        return None
    return Visitor.holding(
        row,
        row["acts_for"],
        session=row["id"],
        csrf=csrf.token(shared, row["id"]),
        now=row["now"],
        version=claims["ver"],
    )


def end(shared: Services, who: Visitor) -> None:
    """End a session for good. Idempotent."""
    Sessions(shared.database).end(who.session, actor=who.actor)


def of(request: Request, shared: Services) -> Visitor | None:
    """Return the visitor who sent a request, by its cookie: looked up once for each request."""
    if not hasattr(request.state, "session"):
        text = request.cookies.get(_name(request, shared), "")
        request.state.session = read(shared, text) if text else None
    known: Visitor | None = request.state.session
    return known


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

"""`forge login`: a person in a browser lets the command act for them."""

import hmac
import re
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Query, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials
from forge_schema.access.api_keys import Sessions
from forge_schema.database.pool import Row
from forge_schema.http_client import challenge_of
from forge_schema.model.fields import Word
from forge_schema.model.states import Role
from pydantic import BaseModel, Field

from forge_functions.auth import short_token
from forge_functions.auth.authentication import AsViewer, bearer, unauthenticated
from forge_functions.dashboard.page import page
from forge_functions.dashboard.routes.access.login import address_of
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
PATH = "/login/terminal"
Once = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{43}$")]
# 0 if the command is on another machine than the browser.
Port = Annotated[int, Field(ge=0, le=65535)]

PURPOSE = b"forge login code"
# Time enough to carry it to another window.
LASTS_S = 300
_FORM = re.compile(r"([0-9a-f]{16})-([0-9]{1,12})-([0-9a-f]{32})")


class Exchange(BaseModel):
    """What the command sends with a code: its verifier, and a name for the list of keys."""

    verifier: str = Field(max_length=200)
    name: Word = "forge login"


class Login(BaseModel):
    """A bearer token, its validity in seconds, and for whom it acts."""

    token: str
    expires_in_s: int
    owner: str
    role: Role


@router.get(PATH)
def confirm(
    request: Request,
    who: SeesPages,
    challenge: Annotated[Once, Query()],
    state: Annotated[Once, Query()],
    port: Annotated[Port, Query()] = 0,
) -> Response:
    """Ask whether the command may act for the visitor."""
    asked = {"challenge": challenge, "state": state, "port": port}
    return page(request, who, "terminal.html", asked=asked, code="", back="")


@router.post(PATH)
def allow(
    request: Request,
    who: SeesPages,
    shared: Shared,
    *,
    challenge: Annotated[Once, Form()],
    state: Annotated[Once, Form()],
    port: Annotated[Port, Form()] = 0,
) -> Response:
    """Lead to the command, which listens on the browser's machine, with a code; or show it."""
    code = mint(shared, who, challenge)
    query = urlencode({"state": state, "code": code})
    back = f"http://127.0.0.1:{port}/?{query}" if port else ""
    answer = page(request, who, "terminal.html", asked={}, code=code, back=back)
    if back:
        # Not a redirect: a form of this page may lead only to this server.
        answer.headers["Refresh"] = f"0; url={back}"
    return answer


@router.post(f"{PATH}/key")
def exchange(
    request: Request,
    body: Exchange,
    shared: Shared,
    code: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Login:
    """Begin a session for a code, as long as the one that the code is from.

    Raises:
        Refused: 401 for a code that is not valid any more, or is another's.
    """
    granted = use(shared, code.credentials if code else "", body.verifier)
    begun = granted and Sessions(shared.database).begin(
        granted["acts_for"],
        granted["owner"],
        Role(granted["role"]),
        name=body.name,
        address=address_of(request),
        # Not longer: each login would else put off the day on which a person's role is read.
        lasts=granted["expires_at"] - granted["now"],
        everyone=granted["others"] is None,
    )
    if not begun:
        raise unauthenticated("this code is not valid any more", "run `forge login` again")
    ends = begun["expires_at"]
    return Login(
        token=short_token.mint(shared, begun, ends),
        expires_in_s=int((ends - begun["now"]).total_seconds()),
        owner=begun["owner"],
        role=Role(begun["role"]),
    )


@router.delete(f"{PATH}/key")
def leave(service: AsViewer, shared: Shared) -> None:
    """End the session of `forge login` that the request came in."""
    who = service.caller
    if not who.session:
        hint = "an admin revokes an API key with `forge key revoke`"
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", "this is no login", hint=hint)
    Sessions(shared.database).end(who.session, actor=who.actor)


def mint(shared: Services, who: Visitor, challenge: str) -> str:
    """Return a code of a visitor's session, for whoever knows the challenge's verifier."""
    sent = int(who.now.timestamp())
    seal = _seal(shared, who.session, sent, who.version, challenge)
    return f"{who.session}-{sent}-{seal}"


def use(shared: Services, code: str, verifier: str) -> Row | None:
    """Return the session that a code is from and use the code up; None if it is not valid."""
    match = _FORM.fullmatch(code)
    session = Sessions(shared.database).valid(match[1]) if match else None
    if match is None or session is None:
        return None
    sent, challenge = int(match[2]), challenge_of(verifier)
    ours = _seal(shared, session["id"], sent, short_token.version(session), challenge)
    if not hmac.compare_digest(match[3], ours):
        return None
    once = {"key_id": session["id"], "nonce": match[3], "sent": sent, "window": LASTS_S}
    row = shared.database.row("use_nonce", **once)
    return session if row and row["fresh"] and row["taken"] else None


def _seal(shared: Services, session: str, sent: int, version: str, challenge: str) -> str:
    text = f"{session} {sent} {version} {challenge}".encode()
    return hmac.new(short_token.secret(shared, PURPOSE), text, "sha256").hexdigest()[:32]

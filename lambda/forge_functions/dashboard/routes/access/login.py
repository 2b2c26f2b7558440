"""Login with an API key or with a link made from one; logout."""

import secrets
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.database.pool import Row
from forge_schema.model.states import Role
from forge_schema.read.audit import Audit
from forge_schema.service.caller import Forbidden

from forge_functions.auth import short_token
from forge_functions.auth.authentication import AsViewer, by_key
from forge_functions.dashboard import csrf, session
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages, local
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
WRONG = "This is not a valid API key."
SIGNS = (
    "This key requires signed requests, which a browser cannot make. Log in with a key that has"
    " no public key."
)
USED = "This link was already used or is too old. Get another one with `forge dashboard`."
IN_THE_CLEAR = (
    "Without TLS, a browser would not keep the session. Use https, or http://127.0.0.1 on the"
    " server's own machine."
)

AUDIENCE = "forge-login"
PURPOSE = b"forge dashboard login link"
LASTS_S = 60


@router.get("/login")
def login_form(
    request: Request, shared: Shared, to: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """Show the login form."""
    return login_page(request, shared, to)


@router.get("/login/link")
def link_form(request: Request, shared: Shared, link: str = "") -> Response:
    """Ask whether to log in by a link, so that a link preview does not use it up."""
    return login_page(request, shared, "/", link=link)


@router.post("/login/link")
def make_link(service: AsViewer, shared: Shared) -> JSONResponse:
    """Create a one-time login link for the request's API key."""
    who = service.caller
    key = Keys(shared.database, actor=who.actor).valid(who.key_id) if who.key_id else None
    if key is None or key["public_key"] is not None:
        raise Forbidden("login links are only for API keys that do not require signed requests")
    to = f"/login/link?link={mint(shared, key)}"
    return JSONResponse({"path": to, "expires_in_s": LASTS_S})


@router.post("/login")
def login(
    request: Request,
    shared: Shared,
    *,
    key: Annotated[str, Form()] = "",
    link: Annotated[str, Form()] = "",
    to: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    """Begin a session with a key or a link, if it is valid."""
    csrf.check_origin(request, shared)
    if not session.kept(request, shared):
        return login_page(request, shared, to, IN_THE_CLEAR)
    if link:
        linked = use(shared, link)
        return _begun(request, shared, linked, to) if linked else _used(request, shared)
    return _by_key(request, shared, key.strip(), to)


@router.post("/logout")
def logout(request: Request, shared: Shared, who: SeesPages) -> Response:
    """End the session in every browser that has its cookie."""
    session.end(shared, who)
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    session.forget(request, answer, shared)
    return answer


def _by_key(request: Request, shared: Services, text: str, to: str) -> Response:
    try:
        key = by_key(request, shared, text)
    except Refused as error:
        return login_page(request, shared, to, error.message, error.status)
    if key is None or key["public_key"] is not None:
        note_refusal(request, shared, text, "wrong" if key is None else "signs")
        return login_page(request, shared, to, WRONG if key is None else SIGNS)
    return _begun(request, shared, key, to)


def _used(request: Request, shared: Services) -> Response:
    note_refusal(request, shared, "", "link")
    return login_page(request, shared, "/", USED)


def _begun(request: Request, shared: Services, key: Row, to: str) -> Response:
    return began(request, shared, (f"key:{key['id']}", key["owner"], Role(key["role"])), to)


def began(
    request: Request,
    shared: Services,
    who: tuple[str, str, Role],
    to: str,
    *,
    everyone: bool = False,
) -> Response:
    """Begin a session of an actor, an owner and a role, and lead to a page of this server."""
    text = session.begin(shared, *who, address_of(request), everyone=everyone)
    if text is None:
        return login_page(request, shared, to, WRONG)
    answer = RedirectResponse(local(to), HTTPStatus.SEE_OTHER)
    session.keep(request, answer, shared, text)
    return answer


def login_page(  # noqa: PLR0917 - rarely used ones come last
    request: Request, shared: Services, to: str, wrong: str = "", status: int = 0, link: str = ""
) -> Response:
    """Show the form, with what was wrong."""
    if not session.kept(request, shared):
        wrong = IN_THE_CLEAR
    status = status or (HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK)
    shown = {"to": local(to), "wrong": wrong, "link": link}
    sso = bool(shared.settings.oidc_client_id)
    return page(request, None, "login.html", status, **shown, sso=sso)


def note_refusal(request: Request, shared: Services, text: str, why: str) -> None:
    """Record a failed login, within a rate limit, since the trail is kept for good."""
    who = f"login@{address_of(request)}"
    try:
        shared.failures.check(who)
    except Refused:
        return
    shared.failures.count(who)
    detail: dict[str, object] = {"key": _id_of(text), "why": why, "address": address_of(request)}
    Audit(shared.database).note("anonymous", "login_refused", detail)


def _id_of(text: str) -> str | None:
    try:
        return tokens.parse(text, TokenKind.KEY).id
    except TokenMalformed:
        return None


def address_of(request: Request) -> str:
    """Return the browser's address."""
    return request.client.host if request.client else ""


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
    row = shared.database.row(
        "use_nonce",
        key_id=claims["sub"],
        nonce=claims["jti"],
        sent=claims["iat"],
        window=LASTS_S,
    )
    return row is not None and bool(row["fresh"]) and bool(row["taken"])

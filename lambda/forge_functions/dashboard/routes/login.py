"""Login by an API key, and logout."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from forge_schema import tokens
from forge_schema.audit import Audit
from forge_schema.database import Row
from forge_schema.keys import Keys
from forge_schema.tokens import TokenKind, TokenMalformed

from forge_functions.auth.caller import by_key
from forge_functions.dashboard import csrf, session
from forge_functions.dashboard.page import page
from forge_functions.dashboard.visitor import SeesPages, local
from forge_functions.errors import Refused
from forge_functions.services import Services, Shared

router = APIRouter()
WRONG = "This is no valid API key."
SIGNS = "This key signs its requests, which a browser cannot do. Log in with a key without one."
IN_THE_CLEAR = (
    "This server is reached without TLS, so a browser would keep no session. Use https, or"
    " http://127.0.0.1 on the server's own machine."
)


@router.get("/login")
def login_form(
    request: Request, shared: Shared, to: Annotated[str, Form(alias="next")] = "/"
) -> Response:
    """Ask for an API key."""
    return _form(request, shared, request.query_params.get("next", to))


@router.post("/login")
def login(
    request: Request,
    shared: Shared,
    key: Annotated[str, Form()] = "",
    to: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    """Begin a session with the key that was given, unless it is none."""
    csrf.check_origin(request, shared)
    if not session.kept(request, shared):
        return _form(request, shared, to, IN_THE_CLEAR)
    text = key.strip()
    try:
        found = by_key(request, shared, text)
    except Refused as error:
        return _form(request, shared, to, error.message, error.status)
    if found is None or found["public_key"] is not None:
        _note_refusal(request, shared, text, found)
        return _form(request, shared, to, WRONG if found is None else SIGNS)
    return _begun(request, shared, found["id"], to)


@router.post("/logout")
def logout(request: Request, shared: Shared, who: SeesPages) -> Response:
    """End the session, wherever its cookie may be."""
    session.end(shared, who)
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    session.forget(request, answer, shared)
    return answer


def _begun(request: Request, shared: Services, key_id: str, to: str) -> Response:
    actor = f"key:{key_id}"
    key = Keys(shared.database, actor=actor).valid(key_id)
    if key is None:
        return _form(request, shared, to, WRONG)
    Audit(shared.database).note(actor, "login", {"key": key_id, "address": _address(request)})
    answer = RedirectResponse(local(to), HTTPStatus.SEE_OTHER)
    session.keep(request, answer, shared, session.mint(shared, key))
    return answer


def _form(
    request: Request, shared: Services, to: str, wrong: str = "", status: int = 0
) -> Response:
    if not session.kept(request, shared):
        wrong = IN_THE_CLEAR
    status = status or (HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK)
    return page(request, None, "login.html", status, to=local(to), wrong=wrong)


def _note_refusal(request: Request, shared: Services, text: str, found: Row | None) -> None:
    """Write a refusal down, but not a flood of them: the trail is kept for good."""
    who = f"login@{_address(request)}"
    try:
        shared.failures.check(who)
    except Refused:
        return
    shared.failures.count(who)
    why = "wrong" if found is None else "signs"
    detail = {"key": _id_of(text), "why": why, "address": _address(request)}
    Audit(shared.database).note("anonymous", "login_refused", detail)


def _id_of(text: str) -> str | None:
    try:
        return tokens.parse(text, TokenKind.KEY).id
    except TokenMalformed:
        return None


def _address(request: Request) -> str:
    return request.client.host if request.client else ""

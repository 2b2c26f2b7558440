"""Protection against CSRF: by the request's origin, and by a token bound to the session."""

import hmac
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request

from forge_functions.auth import short_token
from forge_functions.errors import Refused
from forge_functions.services import Services

HEADER = "X-CSRF-Token"
FIELD = "csrf"
PURPOSE = b"forge dashboard csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def token(shared: Services, session: str) -> str:
    """Return the token that the pages of a session send with every action."""
    return hmac.new(short_token.secret(shared, PURPOSE), session.encode(), "sha256").hexdigest()


async def sent_token(request: Request) -> str:
    """Return the token sent with a request. A FastAPI dependency."""
    if request.method in SAFE:
        return ""
    if HEADER in request.headers:
        return request.headers[HEADER]
    if not request.headers.get("content-type", "").startswith(FORMS):
        return ""
    field = (await request.form()).get(FIELD)
    return field if isinstance(field, str) else ""


def check(request: Request, shared: Services, session: str, text: str) -> None:
    """Check that a page of this session sent an action. Reading needs no token.

    Raises:
        Refused: 403 if not.
    """
    if request.method in SAFE:
        return
    check_origin(request, shared)
    # A header may not be ASCII, which compare_digest accepts only as bytes.
    if not hmac.compare_digest(text.encode("utf-8", "replace"), token(shared, session).encode()):
        raise _refused("this page is older than your login")


def check_origin(request: Request, shared: Services) -> None:
    """Check that a request comes from a page of this server.

    Raises:
        Refused: 403 if not.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in {None, "same-origin"} or (origin is None and site is None):
        raise _refused("this request comes from another site")
    if origin is not None and _place(origin) not in _own(request, shared):
        raise _refused("this request comes from another site")


def _own(request: Request, shared: Services) -> set[str]:
    return {request.headers.get("host", "").lower(), _place(shared.settings.public_url)} - {""}


def _place(url: str) -> str:
    return urlsplit(url).netloc.lower()


def _refused(message: str) -> Refused:
    hint = "reload the page and try again"
    return Refused(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)

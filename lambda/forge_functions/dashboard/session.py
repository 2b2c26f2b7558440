"""Sessions, and their visitors. Each request checks the session and its key: they end at once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Form, Request, Response
from forge_schema.access.api_keys import Sessions
from forge_schema.model.fields import Word
from forge_schema.model.job import JobDetail
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller

from forge_functions.auth import short_token
from forge_functions.bodies import IdInPath
from forge_functions.dashboard import csrf
from forge_functions.errors import Refused
from forge_functions.services import Services, Shared, services

AUDIENCE = "forge-dashboard"
PURPOSE = b"forge dashboard session"
LONG_AGO = datetime.min.replace(tzinfo=UTC)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOGIN = "/login"
LOGIN_WANTED = "login_wanted"


@dataclass(frozen=True, slots=True)
class Visitor(Caller):
    """A logged-in caller. `csrf` goes into every form; `now` is the database's time."""

    csrf: str = ""
    now: datetime = LONG_AGO
    # A mark of the secret of the key that the session acts for.
    version: str = ""


def begin(
    shared: Services, acts_for: str, owner: str, role: Role, address: str, *, everyone: bool = False
) -> str | None:
    """Begin a session and return the text of its cookie; see `Sessions.begin`."""
    lasts = timedelta(seconds=shared.settings.session_lasts_s)
    begun = Sessions(shared.database).begin(
        acts_for,
        owner,
        role,
        name=f"browser at {address}",
        address=address,
        lasts=lasts,
        everyone=everyone,
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


def visitor(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    token: Annotated[str, Depends(csrf.sent_token)],
) -> Visitor:
    """Return the visitor of a page or action. A FastAPI dependency.

    Raises:
        Refused: 303 to the login without a session, or 401 for a part of a page; 403 for an
            action that no page of this session sent.
    """
    who = of(request, shared)
    if who is None:
        raise login_wanted(request)
    request.state.visitor = who
    csrf.check(request, shared, who.session, token)
    return who


def visitor_with(role: Role, *, reading: bool = False) -> Callable[[Visitor], Visitor]:
    """Return a dependency that accepts visitors who `may`."""

    def permitted(who: Annotated[Visitor, Depends(visitor)]) -> Visitor:
        who.require(role, reading=reading)
        return who

    return permitted


FormWord = Annotated[Word, Form()]
"""A name in a form."""

SeesPages = Annotated[Visitor, Depends(visitor_with(Role.VIEWER))]


SubmitsByPage = Annotated[Visitor, Depends(visitor_with(Role.SUBMITTER))]


ReadsAll = Annotated[Visitor, Depends(visitor_with(Role.ADMIN, reading=True))]


RulesByPage = Annotated[Visitor, Depends(visitor_with(Role.ADMIN))]


def login_wanted(request: Request) -> Refused:
    """Return the redirect to the login, which leads back to the page afterwards."""
    by_script = "hx-request" in request.headers or "part" in request.query_params
    to = f"{LOGIN}?next={quote(here(request), safe='')}" if here(request) != "/" else LOGIN
    headers = {"HX-Redirect": to} if by_script else {"Location": to}
    status = HTTPStatus.UNAUTHORIZED if by_script else HTTPStatus.SEE_OTHER
    return Refused(status, LOGIN_WANTED, "log in to see this page", headers=headers)


def here(request: Request) -> str:
    """Return the browser's current page, as a path with its query."""
    if shown := request.headers.get("hx-current-url"):
        parts = urlsplit(shown)
        return local(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    if request.method not in csrf.SAFE:
        # Where the form is; a script puts in again what was typed.
        parts = urlsplit(request.headers.get("referer", ""))
        sent = parts.netloc == request.headers.get("host") and parts.path != LOGIN
        return local(f"{parts.path}?{parts.query}" if parts.query else parts.path) if sent else "/"
    if "part" in request.query_params:
        return "/"
    query = request.url.query
    return local(f"{request.url.path}?{query}" if query else request.url.path)


def local(path: str) -> str:
    """Return a path if it is on this server, and otherwise the first page."""
    fits = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fits and "\\" not in path else "/"


def own_job_of_page(job_id: IdInPath, who: SeesPages, shared: Shared) -> JobDetail:
    """Return a job. A FastAPI dependency.

    Raises:
        JobUnknown: it does not exist or belongs to another owner; the answer is the same.
    """
    return shared.service(who).job(job_id)


PageJob = Annotated[JobDetail, Depends(own_job_of_page)]

"""Authenticate visitors, check their roles, and protect their actions against CSRF."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from forge_schema.model.job import JobDetail
from forge_schema.model.states import Role

from forge_functions.bodies import IdInPath
from forge_functions.dashboard.visit import csrf, session
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.errors import Refused
from forge_functions.services import Services, Shared, services

LOGIN = "/login"
LOGIN_WANTED = "login_wanted"


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
    who = session.of(request, shared)
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
    return _with_query(request)


def _with_query(request: Request) -> str:
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

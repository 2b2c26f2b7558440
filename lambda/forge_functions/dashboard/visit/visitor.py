"""What each page asks for: a visitor of a role, whose acts come from our own pages."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from forge_schema.model.states import Role

from forge_functions.auth.caller import forbidden
from forge_functions.dashboard.visit import csrf, session
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.errors import Refused
from forge_functions.services import Services, services

LOGIN = "/login"
LOGIN_WANTED = "login_wanted"


def visitor(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    token: Annotated[str, Depends(csrf.said)],
) -> Visitor:
    """Return who looks at a page, or acts on it; a FastAPI dependency.

    Raises:
        Refused: 303 to the login without a session, or 401 for a part of a page; 403 for an act
            that no page of this session asked for.
    """
    who = session.of(request, shared)
    if who is None:
        raise login_wanted(request)
    request.state.visitor = who
    csrf.check(request, shared, who.session, token)
    return who


def requires(role: Role) -> Callable[[Visitor], Visitor]:
    """Return the dependency that lets visitors of this role or a higher one pass."""

    def permitted(who: Annotated[Visitor, Depends(visitor)]) -> Visitor:
        if not who.may(role):
            raise forbidden(f"this is for the role {role.value}, and yours is {who.role.value}")
        return who

    return permitted


SeesPages = Annotated[Visitor, Depends(requires(Role.VIEWER))]
SubmitsByPage = Annotated[Visitor, Depends(requires(Role.SUBMITTER))]
RulesByPage = Annotated[Visitor, Depends(requires(Role.ADMIN))]


def login_wanted(request: Request) -> Refused:
    """Return the refusal that leads to the login, and back from there to where one was."""
    by_script = "hx-request" in request.headers or "part" in request.query_params
    to = f"{LOGIN}?next={quote(here(request), safe='')}" if here(request) != "/" else LOGIN
    headers = {"HX-Redirect": to} if by_script else {"Location": to}
    status = HTTPStatus.UNAUTHORIZED if by_script else HTTPStatus.SEE_OTHER
    return Refused(status, LOGIN_WANTED, "log in to see this page", headers=headers)


def here(request: Request) -> str:
    """Return the page that a browser shows, as a path with its query."""
    if shown := request.headers.get("hx-current-url"):
        parts = urlsplit(shown)
        return local(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    if request.method not in csrf.SAFE or "part" in request.query_params:
        return "/"
    query = request.url.query
    return local(f"{request.url.path}?{query}" if query else request.url.path)


def local(path: str) -> str:
    """Return a path if it is one of this server's, and the first page for anything else."""
    fits = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fits and "\\" not in path else "/"

"""The dashboard as part of an app: its routes, headers and error pages."""

from collections.abc import Callable
from http import HTTPStatus
from threading import Lock
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Problem
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.dashboard import session, words
from forge_functions.dashboard.session import LOGIN_WANTED
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter, include

# Where a request has the route of its page.
PAGE = "forge_page"
# Hints for people, in place of those for programs.
HINTS = {"invalid": "Check your input.", "not_found": "The address may be wrong or outdated."}
# How the message begins if a part of the path, such as a job's number, cannot be read.
IN_PATH = "path."
TITLES = {
    HTTPStatus.FORBIDDEN: "Your role does not allow this",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.SERVICE_UNAVAILABLE: "Forge is not available now",
}
# Everything else is a page, or would be if it existed.
NO_PAGES = frozenset({"api", "health", "metrics", "openapi.json"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`, which would also remove the origin of forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class LatePages(BaseRoute):
    """The routes of the dashboard, read when somebody first asks for a page.

    They are a tenth of what a server takes to start, and many answer no browser for hours.
    """

    def __init__(self) -> None:
        self._reading = Lock()
        self._router: APIRouter | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how a page's route matches a request, with that route."""
        best: tuple[Match, Scope] = Match.NONE, {}
        if scope["type"] == "lifespan" or not is_page(scope["path"]):
            return best
        for route in self._routes():
            match, found = route.matches(scope)
            if match.value > best[0].value:
                best = match, {**found, PAGE: route}
            if match is Match.FULL:
                break
        return best

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[PAGE].handle(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        with self._reading:
            if self._router is None:
                from forge_functions.dashboard.routes import ROUTERS  # noqa: PLC0415 - as it says

                pages = LazyRouter()
                for router in ROUTERS:
                    include(pages, router, dependencies=[Depends(words.begun)])
                self._router = pages
        return self._router.routes


def readable(handle: Callable[..., Any]) -> Callable[[Request, Exception], Any]:
    """Return a handler that answers people with a page, and programs with JSON."""

    async def handler(request: Request, error: Exception) -> Response:
        answer: Response = handle(request, error)
        if isinstance(error, Refused) and error.code == LOGIN_WANTED:
            return Response(status_code=error.status, headers=error.headers)
        if not is_page(request.url.path) or not _reads(request):
            return answer
        return await run_in_threadpool(_shown, request, answer)

    return handler


def _reads(request: Request) -> bool:
    by_script = "hx-request" in request.headers
    return by_script or "text/html" in request.headers.get("accept", "")


def _shown(request: Request, answer: Response) -> Response:
    """Render an error as a page, or as a piece of one for an action sent by a script."""
    from forge_functions.dashboard.page import whole  # noqa: PLC0415 - as of the pages

    words.reads(words.language(request), None)
    problem = Problem.model_validate_json(bytes(answer.body))
    status = HTTPStatus(answer.status_code)
    visitor = getattr(request.state, "visitor", None)
    if problem.message.startswith(IN_PATH) or problem.message == HTTPStatus.NOT_FOUND.phrase:
        status = HTTPStatus.NOT_FOUND
        # No route has asked who it is: the menu leads on.
        visitor = visitor or session.of(request, request.app.state.services)
        text = words.t("There is no page with this address.")
        problem = problem.model_copy(update={"code": "not_found", "message": text})
    if problem.hint.startswith("/openapi.json"):
        problem = problem.model_copy(update={"hint": words.t(HINTS.get(problem.code, ""))})
    name = "refusal.html" if "hx-request" in request.headers else "error.html"
    shown = whole(
        request,
        visitor,
        name,
        status,
        problem=problem,
        title=TITLES.get(status, "This failed"),
    )
    kept = ("retry-after", "allow", "x-request-id")
    shown.headers.update({k: v for k, v in answer.headers.items() if k in kept})
    for header, value in HEADERS.items():
        # Unexpected errors are answered outside of all other middleware.
        shown.headers.setdefault(header, value)
    shown.headers.setdefault("Cache-Control", "no-store")
    return shown


class PageHeaders:
    """Adds security headers to every answer except the API's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page(scope["path"]):
            return await self._app(scope, receive, send)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        return await self._app(scope, receive, sending)


def is_page(path: str) -> bool:
    """Tell whether a path belongs to the dashboard, even if there is no such page."""
    return path.lstrip("/").partition("/")[0] not in NO_PAGES


def install(app: FastAPI) -> FastAPI:
    """Add the dashboard to an app and return the app."""
    app.router.routes.append(LatePages())
    for kind in (ForgeError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, readable(app.exception_handlers[kind]))
    app.state.services.visitor_of = session.of
    app.add_middleware(PageHeaders)
    return app

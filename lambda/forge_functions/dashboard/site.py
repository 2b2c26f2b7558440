"""The dashboard as part of an app: its routes, its headers, and errors that people can read."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from forge_schema.errors import ForgeError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions import errors
from forge_functions.dashboard.page import page
from forge_functions.dashboard.routes import login, preferences, queues, static
from forge_functions.errors import Problem

# One for each page; what is more specific comes first.
ROUTERS = (
    static.router,
    login.router,
    preferences.router,
    queues.router,
)
# Whatever else is a page, or would have been one.
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
    # Not `no-referrer`: a browser would then not say where a form comes from, either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
TITLES = {
    HTTPStatus.FORBIDDEN: "This is not for your role",
    HTTPStatus.NOT_FOUND: "There is nothing here",
    HTTPStatus.SERVICE_UNAVAILABLE: "Forge cannot answer now",
}


def install(app: FastAPI) -> FastAPI:
    """Add the dashboard to an app that may have other routes, and return the app."""
    for router in ROUTERS:
        app.include_router(router, include_in_schema=False)
    for kind in (ForgeError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _readable(app.exception_handlers[kind]))
    app.add_middleware(PageHeaders)
    return app


class PageHeaders:
    """Has every answer that is not the API's say what a browser may do with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        pages = scope["type"] == "http" and is_page(scope["path"])
        await self._app(scope, receive, sending if pages else send)


def is_page(path: str) -> bool:
    """Tell whether a path is the dashboard's, or would be if there were such a page."""
    return path.split("/")[1:2] != [] and path.split("/")[1] not in NO_PAGES


def _readable(handle: Callable[..., Any]) -> Callable[[Request, Exception], Any]:
    """Return a handler that answers people with a page, and programs as before."""

    async def handler(request: Request, error: Exception) -> Response:
        answer: Response = handle(request, error)
        wanted = getattr(error, "code", "") == "login_wanted"
        if wanted:
            return Response(status_code=answer.status_code, headers=_of(error))
        if not is_page(request.url.path) or not _reads(request):
            return answer
        return await run_in_threadpool(_shown, request, answer)

    return handler


def _of(error: Exception) -> dict[str, str]:
    return error.headers if isinstance(error, errors.Refused) else {}


def _reads(request: Request) -> bool:
    by_script = "hx-request" in request.headers
    return by_script or "text/html" in request.headers.get("accept", "")


def _shown(request: Request, answer: Response) -> Response:
    """Render an error's answer: a page, or for an act that a script sent, a piece of one."""
    problem = Problem.model_validate_json(bytes(answer.body))
    name = "refusal.html" if "hx-request" in request.headers else "error.html"
    status = HTTPStatus(answer.status_code)
    # The part that was asked for is none of this template's.
    request.scope["query_string"] = b""
    request.__dict__.pop("_query_params", None)
    shown = page(
        request,
        getattr(request.state, "visitor", None),
        name,
        status,
        problem=problem,
        title=TITLES.get(status, "This did not work"),
    )
    kept = ("retry-after", "allow", "x-request-id")
    shown.headers.update({k: v for k, v in answer.headers.items() if k in kept})
    for header, value in HEADERS.items():
        # What the server did not expect is answered outside of everything else.
        shown.headers.setdefault(header, value)
    shown.headers.setdefault("Cache-Control", "no-store")
    return shown

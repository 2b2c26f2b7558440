"""Errors for people: a page, or a piece of one in answer to an action."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from forge_schema.model.fields import Problem

from forge_functions.dashboard import words
from forge_functions.dashboard.page import whole
from forge_functions.dashboard.visit.page_headers import HEADERS, is_page
from forge_functions.dashboard.visit.visitor import LOGIN_WANTED
from forge_functions.errors import Refused

# Hints for people, in place of those for programs.
HINTS = {"invalid": "Check your input.", "not_found": "The address may be wrong or outdated."}
# How the message begins if a part of the path, such as a job's number, cannot be read.
IN_PATH = "path."
TITLES = {
    HTTPStatus.FORBIDDEN: "Your role does not allow this",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.SERVICE_UNAVAILABLE: "Forge is not available now",
}


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
    words.reads(words.language(request), None)
    problem = Problem.model_validate_json(bytes(answer.body))
    status = HTTPStatus(answer.status_code)
    if problem.message.startswith(IN_PATH):
        status = HTTPStatus.NOT_FOUND
        text = words.t("There is no page with this address.")
        problem = problem.model_copy(update={"code": "not_found", "message": text})
    if problem.hint.startswith("/openapi.json"):
        problem = problem.model_copy(update={"hint": words.t(HINTS.get(problem.code, ""))})
    name = "refusal.html" if "hx-request" in request.headers else "error.html"
    shown = whole(
        request,
        getattr(request.state, "visitor", None),
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

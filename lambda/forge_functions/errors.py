"""One shape for every error: `code`, `message`, `hint`, `request_id`."""

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from forge_schema.model.errors import KINDS, ErrorKind, ForgeError, JobInvalid
from forge_schema.model.fields import Problem
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

log = structlog.get_logger(__name__)

# Any other error is the server's fault.
BY_KIND = {
    ErrorKind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorKind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorKind.CONFLICT: HTTPStatus.CONFLICT,
    ErrorKind.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorKind.DENIED: HTTPStatus.FORBIDDEN,
}
# What is set up wrongly here cannot be mended by the caller.
STATUS = {code: BY_KIND[kind] for code, kind in KINDS.items() if kind in BY_KIND} | {
    "object_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "database_not_migrated": HTTPStatus.SERVICE_UNAVAILABLE,
    "store_unfit": HTTPStatus.NOT_IMPLEMENTED,
    "store_url_invalid": HTTPStatus.SERVICE_UNAVAILABLE,
}
# nginx's: the client has left before it had its answer.
CLIENT_LEFT = 499
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
CODES = {
    HTTPStatus.BAD_REQUEST: "invalid",
    HTTPStatus.REQUEST_TIMEOUT: "too_slow",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
}
HINTS = {
    HTTPStatus.BAD_REQUEST: "send JSON in UTF-8",
    HTTPStatus.REQUEST_TIMEOUT: "send it without pauses",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        "send code and results to the URLs that /api/v1/bundles and the objects paths return"
    ),
}


class Refused(ForgeError):
    """An error of the HTTP layer itself, with its status and code."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        *,
        hint: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.headers = headers or {}


DESCRIPTIONS = {
    400: "The body is not JSON in UTF-8.",
    401: "The request has no valid credentials.",
    403: "The caller's role is too low for this.",
    404: "It does not exist or belongs to another owner.",
    409: "It conflicts with the current state.",
    412: "The object already exists.",
    413: "It is too large.",
    422: "The request is invalid; the message names the field.",
    429: "Too many wrong secrets or requests; Retry-After has the seconds to wait.",
    503: "The database or the store is unavailable, or the server is busy; see Retry-After.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors that a path may return, for the OpenAPI document."""
    return {s: {"model": Problem, "description": DESCRIPTIONS[s]} for s in statuses}


def install(app: FastAPI) -> None:
    """Make the app answer every error in the same shape."""
    app.add_exception_handler(ForgeError, forge_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, _client_left)
    app.add_exception_handler(Exception, _unexpected)


def answer(
    request: Request, status: int, problem: Problem, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return the response for an error."""
    request_id = getattr(request.state, "request_id", "")
    # A message quotes the request, which may have half a surrogate pair, not valid in UTF-8.
    message = problem.message.encode("utf-8", "replace").decode()
    body = problem.model_copy(update={"request_id": request_id, "message": message}).model_dump()
    return JSONResponse(body, status, headers={**(headers or {}), "X-Request-Id": request_id})


def forge_error(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of Forge's own."""
    assert isinstance(error, ForgeError)  # noqa: S101 - Starlette's type is wider
    if isinstance(error, JobInvalid):
        place = ("body", *error.place)
        faults = [{**fault, "loc": (*place, *fault["loc"])} for fault in error.faults]
        return _invalid(request, RequestValidationError(faults))
    problem = Problem(code=error.code, message=error.message, hint=error.hint)
    if isinstance(error, Refused):
        return answer(request, error.status, problem, error.headers)
    status = STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        # The location is for the operator, not for the caller.
        log.warning("dependency_unavailable", code=error.code, message=error.message)
        what = "store" if error.code.startswith("store") else "database"
        problem = Problem(
            code=error.code, message=f"the {what} is not available now", hint="try again later"
        )
        return answer(request, status, problem, {"Retry-After": "5"})
    return answer(request, status, problem)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    faults = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
    kind = request.headers.get("content-type", "application/json")
    hint = "/openapi.json describes each path"
    if any(e["type"] == "json_invalid" for e in error.errors()):
        hint = HINTS[HTTPStatus.BAD_REQUEST]
    elif "json" not in kind and any(e["loc"] == ("body",) for e in error.errors()):
        hint = f"send JSON as Content-Type: application/json, and not as {kind[:100]}"
    problem = Problem(code="invalid", message="; ".join(faults), hint=hint)
    return answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, problem)


def http_error(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of HTTP itself."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    status = HTTPStatus(error.status_code)
    hint = HINTS.get(status, "/openapi.json lists the paths")
    if status is HTTPStatus.NOT_FOUND and (path := _versioned(request)):
        hint = f"did you mean {path}?"
    problem = Problem(code=CODES.get(status, "refused"), message=str(error.detail), hint=hint)
    headers = dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request, request.scope["path"]))
    return answer(request, status, problem, headers)


def _versioned(request: Request) -> str:
    """Return the path of the API that a path without its version stands for, or ""."""
    path = f"/api/v1/{request.scope['path'].removeprefix('/').removeprefix('api/')}"
    return path if _allowed(request, path) else ""


def _allowed(request: Request, path: str) -> list[str]:
    # Each method has its own route, and the framework names only one of them.
    scopes = {method: {**request.scope, "path": path, "method": method} for method in METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


def _client_left(_request: Request, _error: Exception) -> Response:
    # Nobody reads it: it is for the log and the counters.
    return Response(status_code=CLIENT_LEFT)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected_error", error=type(error).__name__, exc_info=error)
    problem = Problem(
        code="internal",
        message="unexpected error",
        hint="the server's log has details under the request's id",
    )
    return answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, problem)

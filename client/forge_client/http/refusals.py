"""What a server's refusal means for the one who asked: one line, a hint, an exit code."""

from http import HTTPStatus

import httpx
from pydantic import BaseModel, ValidationError

from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode
from forge_client.http.patience import Passing
from forge_client.project.request import in_own_words

# By status, so that a code which only a newer server knows has the right one too.
EXIT_CODES = {
    HTTPStatus.BAD_REQUEST: ExitCode.USAGE,
    HTTPStatus.UNAUTHORIZED: ExitCode.DENIED,
    HTTPStatus.FORBIDDEN: ExitCode.DENIED,
    HTTPStatus.NOT_FOUND: ExitCode.NOT_FOUND,
    HTTPStatus.CONFLICT: ExitCode.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ExitCode.USAGE,
    HTTPStatus.UNPROCESSABLE_ENTITY: ExitCode.USAGE,
    HTTPStatus.TOO_MANY_REQUESTS: ExitCode.UNREACHABLE,
    HTTPStatus.BAD_GATEWAY: ExitCode.UNREACHABLE,
    HTTPStatus.SERVICE_UNAVAILABLE: ExitCode.UNREACHABLE,
    HTTPStatus.GATEWAY_TIMEOUT: ExitCode.UNREACHABLE,
}
# What helps here and is not for the server to know.
HINTS = {
    HTTPStatus.UNAUTHORIZED: "check FORGE_API_KEY or --api-key-file: the key may have expired, or"
    " been rotated or revoked; an admin makes one with `forge keys create`",
    HTTPStatus.FORBIDDEN: "ask an admin for a key with a higher role",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "submit fewer jobs at once",
    HTTPStatus.TOO_MANY_REQUESTS: "wait, and check FORGE_API_KEY or --api-key-file",
}
PASSING = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
# What stands between the caller and the server may refuse in words of its own.
FROM_BETWEEN = {
    HTTPStatus.UNAUTHORIZED: "the server does not take this API key",
    HTTPStatus.FORBIDDEN: "the server does not allow this",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the request is too large for the server",
    HTTPStatus.TOO_MANY_REQUESTS: "the server has too much to do",
    HTTPStatus.BAD_GATEWAY: "what stands before the server does not reach it",
    HTTPStatus.SERVICE_UNAVAILABLE: "the server is not ready",
    HTTPStatus.GATEWAY_TIMEOUT: "the server does not answer in time",
}
INVALID = "invalid"
LOCKED_OUT = "too_many_failures"
UNKNOWN_PATH = {"not_found", "method_not_allowed"}


class Problem(BaseModel):
    """The one shape of a server's errors."""

    code: str
    message: str
    hint: str = ""
    request_id: str = ""


def refusal(answer: httpx.Response, place: str) -> ClientError | Passing:
    """Return what an answer that is no success means; `place` is the server's URL."""
    if answer.is_redirect:
        return _elsewhere(answer, place)
    problem = _problem(answer)
    if problem is None:
        return not_forge(answer, place)
    if problem.code in UNKNOWN_PATH:
        return _older(place)
    error = ClientError(
        in_own_words(problem.message) if problem.code == INVALID else problem.message,
        hint=_hint(problem, _status(answer)),
        code=problem.code,
        exit_code=EXIT_CODES.get(_status(answer), ExitCode.FAILED),
    )
    if problem.code == LOCKED_OUT:
        error.exit_code = ExitCode.DENIED
        return error
    if answer.status_code in PASSING:
        # A database that went away may have taken the change with its last breath.
        unsure = answer.status_code != HTTPStatus.TOO_MANY_REQUESTS
        return Passing(error, unsure=unsure, after_s=_after_s(answer))
    if answer.is_server_error:
        error.hint = f"{problem.hint}: {problem.request_id}" if problem.request_id else problem.hint
    return error


def not_forge(answer: httpx.Response, place: str) -> ClientError:
    """Return that what answers here is no Forge server."""
    kind = answer.headers.get("content-type", "").partition(";")[0] or "nothing to read"
    return ClientError(
        f"{place} does not answer as a Forge server does: HTTP {answer.status_code}, {kind}",
        hint="check the URL, its port and the path in it",
        code="not_forge",
    )


def _older(place: str) -> ClientError:
    return ClientError(
        f"the server at {place} does not know this request",
        hint="check the path in the URL; or the server is older than this `forge`",
        code="path_unknown",
    )


def _problem(answer: httpx.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(answer.content)
    except ValidationError:
        pass
    said = FROM_BETWEEN.get(_status(answer))
    return Problem(code="refused", message=f"{said}: HTTP {answer.status_code}") if said else None


def _hint(problem: Problem, status: HTTPStatus) -> str:
    # A server's hint about headers is for programs, any other knows more than we do.
    ours = HINTS.get(status, "")
    return ours if "header" in problem.hint else problem.hint or ours


def _elsewhere(answer: httpx.Response, place: str) -> ClientError:
    # Never followed: a POST would become a GET, and the key would travel along.
    to = answer.headers.get("location", "nowhere").partition("/api/")[0].partition("/health")[0]
    return ClientError(
        f"{place} sends on to {to}",
        hint="name that URL, if it is the server",
        code="redirected",
    )


def _status(answer: httpx.Response) -> HTTPStatus:
    try:
        return HTTPStatus(answer.status_code)
    except ValueError:
        return HTTPStatus.INTERNAL_SERVER_ERROR


def _after_s(answer: httpx.Response) -> float:
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isdecimal() else 0.0

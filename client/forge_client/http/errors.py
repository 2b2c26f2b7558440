"""Errors of requests to a server: no answer, a refusal, or a rejected job."""

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import httpx
from forge_schema.http_client import NOT_SENT, below, retry_after_s, trust_hint, untrusted
from forge_schema.model.fields import Problem
from forge_schema.proxies import ProxyFailed
from pydantic import ValidationError

from forge_client.errors import ClientError, ExitCode


class Retryable(Exception):
    """A failure that may not occur in another try.

    Args:
        error: the error to raise when no tries are left.
        unsure: whether the request may have taken effect.
        after_s: how long to wait before the next try, in seconds.
    """

    def __init__(self, error: ClientError, *, unsure: bool, after_s: float = 0.0) -> None:
        super().__init__(error.message)
        self.error = error
        self.unsure = unsure
        self.after_s = after_s


def loss(error: Exception, place: str) -> ClientError | Retryable:
    """Return the error for a request without an answer; `place` is the server's URL."""
    proxy = below(error, ProxyFailed)
    place = f"{place}, through the proxy {proxy}," if proxy else place
    if why := untrusted(error):
        hint = trust_hint(why, TRUST_HINT)
        return _tls(f"the certificate of {place} is not trusted: {why}", hint)
    if (broken := below(error, ssl.SSLError)) is not None:
        return _tls(f"no TLS connection to {place} is possible: {_why(broken)}", SCHEME_HINT)
    if (unknown := below(error, socket.gaierror)) is not None:
        return Retryable(_unreachable(place, _why(unknown), proxy), unsure=False)
    if isinstance(error, httpx.RemoteProtocolError) and place.startswith("http://"):
        failed = _unreachable(place, _why(error), proxy)
        failed.hint = "if it speaks TLS, write https://; else check what listens there"
        return Retryable(failed, unsure=True)
    if isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol):
        return Retryable(
            _unreachable(place, _why(error), proxy), unsure=not isinstance(error, NOT_SENT)
        )
    return _unreachable(place, _why(error), proxy)


TRUST_HINT = (
    "pass its authority's certificate with --tls-ca or FORGE_TLS_CA; in development,"
    " FORGE_INSECURE_SKIP_VERIFY=true disables the check"
)
SCHEME_HINT = "check whether the server uses http:// or https://"


def _tls(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="tls_failed")


def _unreachable(place: str, why: str, proxy: ProxyFailed | None = None) -> ClientError:
    return ClientError(
        f"{place} does not answer: {why}",
        hint="check the proxy; if this machine reaches the server without one, list its host in"
        " NO_PROXY"
        if proxy
        else "check the URL, that the server is running, and that this machine can reach it",
        code="server_unreachable",
    )


def _why(error: BaseException) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it takes too long"
    if (proxy := below(error, ProxyFailed)) and proxy is not error and proxy.__cause__ is not None:
        error = proxy.__cause__  # It names the proxy too.
    reason = str(getattr(error, "strerror", None) or error).partition(" (_ssl.c")[0]
    return reason or type(error).__name__


# By status, so that unknown codes of a newer server get the right exit code too.
STATUS_EXIT_CODES = {
    HTTPStatus.BAD_REQUEST: ExitCode.USAGE,
    HTTPStatus.UNAUTHORIZED: ExitCode.DENIED,
    HTTPStatus.FORBIDDEN: ExitCode.DENIED,
    HTTPStatus.NOT_FOUND: ExitCode.NOT_FOUND,
    HTTPStatus.CONFLICT: ExitCode.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ExitCode.USAGE,
    HTTPStatus.UNPROCESSABLE_ENTITY: ExitCode.USAGE,
    HTTPStatus.TOO_MANY_REQUESTS: ExitCode.UNREACHABLE,
    HTTPStatus.NOT_IMPLEMENTED: ExitCode.SETUP,
    HTTPStatus.BAD_GATEWAY: ExitCode.UNREACHABLE,
    HTTPStatus.SERVICE_UNAVAILABLE: ExitCode.UNREACHABLE,
    HTTPStatus.GATEWAY_TIMEOUT: ExitCode.UNREACHABLE,
}
# Hints about this machine, which the server cannot give.
HINTS = {
    HTTPStatus.UNAUTHORIZED: "check FORGE_API_KEY or --api-key-file: the key may have expired, or"
    " been rotated or revoked; an admin creates one with `forge key create`",
    HTTPStatus.FORBIDDEN: "ask an admin for a key with a higher role",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "submit fewer jobs at once",
    HTTPStatus.TOO_MANY_REQUESTS: "wait, and check FORGE_API_KEY or --api-key-file",
}
RETRYABLE = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
# Messages for refusals by a proxy in front of the server.
PROXY_MESSAGES = {
    HTTPStatus.UNAUTHORIZED: "the server refuses this API key",
    HTTPStatus.FORBIDDEN: "the server does not allow this",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the request is too large for the server",
    HTTPStatus.TOO_MANY_REQUESTS: "the server is overloaded",
    HTTPStatus.BAD_GATEWAY: "the proxy in front of the server cannot reach it",
    HTTPStatus.SERVICE_UNAVAILABLE: "the server is not ready",
    HTTPStatus.GATEWAY_TIMEOUT: "the server does not answer in time",
}
INVALID = "invalid"
LOCKED_OUT = "too_many_failures"
# Where a field is in the request, which the caller did not write.
REQUEST_PATH = re.compile(r"(?<![^ ])(body|query|path)\.((jobs\.\d+|spec)\.)?(?=\w)")
UNKNOWN_PATH = {"not_found", "method_not_allowed"}
UNKNOWN_REQUEST = "path_unknown"
NOT_FORGE = "not_forge"


def refusal(answer: httpx.Response, place: str) -> ClientError | Retryable:
    """Return the error for an unsuccessful response; `place` is the server's URL."""
    if answer.is_redirect:
        return _elsewhere(answer, place)
    problem = _problem(answer)
    if problem is None:
        return not_forge(answer, place)
    if problem.code in UNKNOWN_PATH:
        return _older(place)
    locked_out = problem.code == LOCKED_OUT
    by_status = STATUS_EXIT_CODES.get(_status(answer), ExitCode.FAILED)
    error = ClientError(
        _invalid(problem.message) if problem.code == INVALID else problem.message,
        hint=_hint(problem, _status(answer)),
        code=problem.code,
        exit_code=ExitCode.DENIED if locked_out else by_status,
    )
    if locked_out:
        return error
    if answer.status_code in RETRYABLE:
        # A database that failed may have committed the change first.
        unsure = answer.status_code != HTTPStatus.TOO_MANY_REQUESTS
        return Retryable(error, unsure=unsure, after_s=retry_after_s(answer))
    if answer.is_server_error:
        error.hint = f"{problem.hint}: {problem.request_id}" if problem.request_id else problem.hint
    return error


def logged_out(place: str) -> ClientError:
    """Return the error for a login that is over; `place` is the server's URL."""
    return ClientError(
        f"the login to {place} has expired, or was ended",
        hint="run `forge login`",
        code="login_over",
    )


def _invalid(message: str) -> str:
    # A request takes much of pydantic to import.
    from forge_client.project.request import in_own_words  # noqa: PLC0415

    bare = REQUEST_PATH.sub("", message).replace("Value error, ", "")
    return in_own_words(bare)


def not_forge(answer: httpx.Response, place: str) -> ClientError:
    """Return the error for a response that is not from a Forge server."""
    kind = answer.headers.get("content-type", "").partition(";")[0] or "nothing to read"
    if proxy := answer.extensions.get("proxy"):
        place = f"{place}, through the proxy {proxy},"
    return ClientError(
        f"{place} does not answer like a Forge server: HTTP {answer.status_code}, {kind}",
        hint="check the URL, its port and the path in it",
        code=NOT_FORGE,
    )


def _older(place: str) -> ClientError:
    return ClientError(
        f"the server at {place} does not know this request",
        hint="check the path in the URL; the server may be older than this `forge`",
        code=UNKNOWN_REQUEST,
    )


def _problem(answer: httpx.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(answer.content)
    except ValidationError:
        pass
    text = PROXY_MESSAGES.get(_status(answer))
    proxy = answer.extensions.get("proxy")
    through = f", through the proxy {proxy}" if proxy else ""
    message = f"{text}: HTTP {answer.status_code}{through}"
    return Problem(code="refused", message=message) if text else None


def _hint(problem: Problem, status: HTTPStatus) -> str:
    # A server's hint about HTTP itself is for programs; any other is better than ours.
    ours = HINTS.get(status, "")
    of_http = "header" in problem.hint or "/openapi.json" in problem.hint
    return ours if of_http else problem.hint or ours


def _elsewhere(answer: httpx.Response, place: str) -> ClientError:
    # Redirects are not followed: a POST would become a GET, and the key would be sent along.
    to = answer.headers.get("location", "nowhere").partition("/api/")[0].partition("/health")[0]
    return ClientError(
        f"{place} redirects to {to}",
        hint="use that URL if it is the server's",
        code="redirected",
    )


def _status(answer: httpx.Response) -> HTTPStatus:
    try:
        return HTTPStatus(answer.status_code)
    except ValueError:
        return HTTPStatus.INTERNAL_SERVER_ERROR


@contextmanager
def rejected_job() -> Iterator[None]:
    """Name the fields of a rejected job as users write them."""
    try:
        yield
    except ClientError as error:
        if error.code != "invalid":
            raise
        raise ClientError(error.message, code="spec_invalid") from error

"""Requests to the servers: with the worker's token, in JSON, with errors as exceptions."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import httpx
import structlog
from forge_schema.http_client import NOT_SENT, open_client, retry_after_s, untrusted
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Problem
from forge_schema.queue.queue import WorkerUnknown
from forge_schema.queue.registry import NameInUse
from forge_schema.signing import Signing
from forge_schema.storage import ObjectTooLarge, StoreUnfit, StoreUnreachable
from pydantic import BaseModel, ValidationError

from forge_worker.circuit_breaker import (
    CircuitBreaker,
    NotAnswered,
    QueueRefused,
    Servers,
    ServerUnreachable,
)

if TYPE_CHECKING:
    from forge_schema.protocol.messages import Body

A = TypeVar("A", bound=BaseModel)

PATH = "/api/v1/workers"
HEADER = "X-Worker-Token"
PROGRAM = "forge-worker"
TIMEOUT = httpx.Timeout(20.0, connect=5.0, pool=10.0)

log = structlog.get_logger(__name__)


class TokenRefused(QueueRefused):
    """The server refuses the token: it was replaced, has expired, or belongs to another worker.

    Or it refuses the signature of a request.
    """


class LeaseUnknown(ForgeError):
    """The server does not know this lease of the worker."""


class ServerRefused(ForgeError):
    """The server refused the request, and would refuse it again."""


REFUSALS: dict[str, type[ForgeError]] = {
    "signature_invalid": TokenRefused,
    "worker_unknown": WorkerUnknown,
    "object_too_large": ObjectTooLarge,
    "name_in_use": NameInUse,
    "lease_unknown": LeaseUnknown,
}


class ServerFailed(ServerUnreachable):
    """The server failed at this request; other requests may succeed."""


class Session:
    """Requests of one worker. Thread-safe.

    Args:
        servers: the servers to use.
        token: returns the worker's token, which may change while the worker runs.
        tls: the TLS context of connections.
        signing: signs the requests; None sends them unsigned.
        clock: returns seconds.
    """

    def __init__(
        self,
        servers: Servers,
        token: Callable[[], str],
        tls: ssl.SSLContext,
        *,
        signing: Signing | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.servers = servers
        # Whether the server said so when the worker registered.
        self.stores_small_objects = False
        self._read_token = token
        self._clock = clock
        self._lock = Lock()
        self._token = ""
        self._refusal = _token_refused()
        # Rests while the token is refused: too many wrong ones lock the worker out.
        self._turns = CircuitBreaker(
            "the token", longest_pause_s=0.0, refusals=servers.refusals, clock=clock
        )
        self.client = open_client(PROGRAM, tls, TIMEOUT, signing)
        # For what must not wait until another's request has ended.
        self._apart = open_client(PROGRAM, tls, TIMEOUT, signing)

    def close(self) -> None:
        self.client.close()
        self._apart.close()

    def post(
        self,
        path: str,
        body: Body,
        answer: type[A],
        *,
        repeatable: bool = True,
        apart: bool = False,
        counts: bool = True,
    ) -> A:
        """Send a body and return the answer; `apart` uses a separate set of connections.

        `counts` as of `Servers.ask`.

        Raises:
            ServerUnreachable: no server answers.
            ServerFailed: a server answers, but cannot handle the request now.
            StoreUnreachable: the server's store is not available.
            TokenRefused: the token is not valid.
            WorkerUnknown: the worker must register.
            NameInUse: another process is this worker.
            LeaseUnknown: the worker does not hold the lease.
            ObjectTooLarge: the object is too large for the store.
            ServerRefused: the server refuses the request.
        """
        client = self._apart if apart else self.client
        request = partial(self._request, client, "POST", path, body.model_dump_json().encode())
        return self.ask(
            lambda url: read(request(url), answer), repeatable=repeatable, counts=counts
        )

    def get(self, path: str, answer: type[A]) -> A:
        """Get an answer; raises as `post`."""
        return self.ask(
            lambda url: read(self._request(self.client, "GET", path, None, url), answer)
        )

    def ask(
        self, question: Callable[[str], A], *, repeatable: bool = True, counts: bool = True
    ) -> A:
        """Ask the servers; if the token was replaced meanwhile, retry at once with the new one."""
        try:
            return self._ask(question, repeatable=repeatable, counts=counts)
        except TokenRefused:
            return self._ask(question, repeatable=repeatable, counts=counts)

    def _ask(self, question: Callable[[str], A], *, repeatable: bool, counts: bool) -> A:
        shown, began = self.token(), self._clock()
        try:
            answer = self.servers.ask(question, repeatable=repeatable, counts=counts)
        except TokenRefused as error:
            self._refused(shown, began, error)
            raise
        # A stream that began with the old token may end well after that was refused.
        self._turns.answered(began)
        return answer

    def token(self) -> str:
        """Return the token to try, the newest if the last one was refused.

        Raises:
            TokenRefused: it was refused recently, and has not changed.
        """
        with self._lock:
            if self._token and self._turns.admits():
                return self._token
            token = self._newest()
            if token == self._token:
                raise TokenRefused(self._refusal.message, hint=self._refusal.hint)
            self._token = token
        self._turns.retry()
        return token

    @property
    def headers(self) -> dict[str, str]:
        """The headers that show the token of the request under way."""
        return {HEADER: self._token}

    def _newest(self) -> str:
        try:
            return self._read_token()
        except ForgeError as error:
            if not self._token:
                raise
            # Its file is being replaced.
            log.warning("token_unreadable", error=error.message)
            return self._token

    def _refused(self, shown: str, began: float, refusal: TokenRefused) -> None:
        if shown == self._token:
            self._refusal = refusal
            self._turns.failed(refusal.message, began, refused=True)

    def _request(
        self, client: httpx.Client, method: str, path: str, content: bytes | None, url: str
    ) -> httpx.Response:
        headers = {**self.headers, "Content-Type": "application/json"}
        place = f"{url}{PATH}{path}"
        try:
            return client.request(method, place, content=content, headers=headers)
        except httpx.RequestError as error:
            raise not_answered(error) from error


def not_answered(error: httpx.RequestError) -> NotAnswered:
    """Return what a failure of the connection means."""
    if why := untrusted(error):
        return NotAnswered(f"its certificate is not trusted: {why}", sent=False, refused=True)
    return NotAnswered(str(error) or type(error).__name__, sent=not isinstance(error, NOT_SENT))


def checked(response: httpx.Response) -> None:
    """Check that a response is a success.

    Raises:
        NotAnswered: the server cannot answer now.
        ForgeError: the server refuses; see `Session.post`.
    """
    if response.is_success:
        return
    problem = _problem(response)
    message = f"{response.status_code} {problem.message or response.reason_phrase}"
    if problem.code == "store_unfit":
        raise StoreUnfit(f"the server's store: {message}", hint=problem.hint)
    if problem.code.startswith("store_"):
        raise StoreUnreachable(f"the server's store: {message}", hint=problem.hint)
    if problem.code == "internal":
        raise ServerFailed(f"the server failed: {message}", hint=f"its log: {problem.request_id}")
    if response.status_code >= 500 or response.status_code in {408, 429}:  # noqa: PLR2004
        rest_s = retry_after_s(response)
        raise NotAnswered(message, sent=response.status_code != 429, rest_s=rest_s)  # noqa: PLR2004
    if problem.code == "unauthenticated":
        raise _token_refused()
    if kind := REFUSALS.get(problem.code):
        raise kind(problem.message, hint=problem.hint)
    raise ServerRefused(f"the server refused the request: {message}", hint=problem.hint)


def read(response: httpx.Response, answer: type[A]) -> A:
    """Return the body of a successful response; raises as `checked`."""
    checked(response)
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        raise NotAnswered("the server that answers is not a forge-server", sent=True) from error


def _problem(response: httpx.Response) -> Problem:
    try:
        return Problem.model_validate({"code": "", "message": "", **response.json()})
    except (ValueError, TypeError):
        return Problem(code="", message="")


def _token_refused() -> TokenRefused:
    return TokenRefused(
        "the server refuses this worker's token",
        hint="it was replaced or has expired; ask an admin for a new one",
    )

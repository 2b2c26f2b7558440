"""Requests to a server, retried as long as that is useful and safe."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from forge_schema.http_client import open_client, tls_context
from forge_schema.made_once import made_once
from pydantic import BaseModel, ValidationError

from forge_client.errors import ClientError, as_client_error
from forge_client.http import Server, open_signing
from forge_client.http.errors import Retryable, logged_out, loss, not_forge, refusal

if TYPE_CHECKING:
    from forge_schema.signing import Signing

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)
Fields = Mapping[str, Any]

# In seconds, for a server that has answered before: it is probably restarting.
PATIENCE_S = 60.0
FIRST_PATIENCE_S = 4.0
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


def retried(act: Callable[[], T], *, patience_s: Callable[[], float], again: bool = True) -> T:
    """Call `act` until it succeeds or patience ends.

    Args:
        act: raises `Retryable` to be called again; any other error ends it.
        patience_s: tells after how many seconds no new try is begun; asked after each, because a
            try may show that there is a server.
        again: whether to retry even if the last try may have taken effect.

    Raises:
        ClientError: the error of the last try, or that its effect is unknown.
    """
    began = time.monotonic()
    for pause in _pauses():
        try:
            return act()
        except Retryable as failed:
            if failed.unsure and not again:
                raise _unsure(failed.error) from failed
            rest = max(pause, failed.after_s)
            if time.monotonic() + rest > began + patience_s():
                raise failed.error from failed
        time.sleep(rest)
    raise AssertionError  # the pauses are infinite


def _pauses() -> Iterator[float]:
    """Yield growing pauses with random jitter, so that many callers do not retry at once."""
    longest = FIRST_PAUSE_S
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - no secret
        longest = min(longest * 2, LONGEST_PAUSE_S)


def _unsure(error: ClientError) -> ClientError:
    return ClientError(
        f"{error.message}; it is unknown whether the request took effect",
        hint="check before you repeat it",
        code="answer_lost",
        exit_code=error.exit_code,
    )


class Transport:
    """Requests to one server. Thread-safe.

    Raises:
        ClientError: the certificates or the signing key cannot be used.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._answered = False
        # Loading the authorities takes a while, and plain HTTP needs none.
        plain = server.url.startswith("http:") and server.ca is None
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else self.tls
        auth = _Key(server, open_signing(server.signing_key))
        self._client = open_client("forge", tls, TIMEOUT, auth)

    @made_once
    def tls(self) -> ssl.SSLContext:
        """The certificates to trust."""
        with as_client_error():
            return tls_context(self.server.ca, verify=self.server.verify)

    @made_once
    def bare(self) -> httpx.Client:
        """An HTTP client with the same certificates but without the API key."""
        return open_client("forge", self.tls, TIMEOUT)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        if "bare" in self.__dict__:
            self.bare.close()

    def get(self, path: str, **params: object) -> Any:  # noqa: ANN401 - JSON has no narrower type
        """Send a GET request; parameters that are None are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        return self.ask("GET", path, again=True, params=given)

    def send(self, method: str, path: str, body: Fields | None = None, *, again: bool) -> Any:  # noqa: ANN401 - as above
        """Send a request that changes something.

        Args:
            method: `POST`, `PUT`, `PATCH` or `DELETE`.
            path: what to do it to.
            body: the request's JSON.
            again: whether the request is idempotent.

        Raises:
            ClientError: it was refused, or nothing answers; `answer_lost` if its effect is unknown.
        """
        return self.ask(method, path, again=again, json=body)

    def record(self, kind: type[R], answer: object) -> R:
        """Parse an answer as one record; `ClientError` if it is malformed."""
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise self._strange() from error

    def records(self, kind: type[R], answer: object, **more: object) -> list[R]:
        """Parse an answer as records, adding the fields in `more`.

        Raises:
            ClientError: it is malformed.
        """
        rows = self.items(answer)
        return [self.record(kind, {**row, **more}) for row in rows if isinstance(row, dict)]

    def items(self, answer: object) -> list[Any]:
        """Return an answer that must be a list; `ClientError` if it is not a list."""
        items = self.field(answer, "items")
        if not isinstance(items, list):
            raise self._strange()
        return items

    def field(self, answer: object, name: str) -> Any:  # noqa: ANN401 - as above
        """Return a required field of an answer; `ClientError` if the field is missing."""
        if not isinstance(answer, dict) or name not in answer:
            raise self._strange()
        return answer[name]

    def _strange(self) -> ClientError:
        return ClientError(
            f"this version of `forge` does not understand the answer of {self.server.url}",
            hint="check the URL; `forge --version` and the server's version should be close",
            code="not_forge",
        )

    def ask(self, method: str, path: str, *, again: bool, **given: Any) -> Any:  # noqa: ANN401 - as above
        """Send a request with httpx's options, and return the answer's JSON."""
        return retried(
            lambda: self._once(method, path, **given), patience_s=self.patience_s, again=again
        )

    def patience_s(self) -> float:
        """Return how long to keep trying, in seconds."""
        return PATIENCE_S if self._answered else FIRST_PATIENCE_S

    def _once(self, method: str, path: str, **given: Any) -> Any:  # noqa: ANN401 - as above
        answer = self.exchange(method, path, **given)
        if not answer.is_success:
            raise self._refusal(answer)
        self._answered = True
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise not_forge(answer, self.server.url) from None

    def _refusal(self, answer: httpx.Response) -> ClientError | Retryable:
        if self.server.login and answer.status_code == HTTPStatus.UNAUTHORIZED:
            return logged_out(self.server.url)
        return refusal(answer, self.server.url)

    def exchange(self, method: str, path: str, **given: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """Return the response, whatever its status.

        Raises:
            ClientError: there is no response, and retrying is useless.
            Retryable: there is no response this time.
        """
        try:
            with as_client_error():
                return self._client.request(method, self.server.url + path, **given)
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise loss(error, self.server.url) from error


class _Key(httpx.Auth):
    """Adds the API key, and a signature if configured, to every request."""

    requires_request_body = True

    def __init__(self, server: Server, signing: Signing | None) -> None:
        self._key = server.key
        self._signing = signing

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._key is None:
            raise _no_key()
        request.headers["Authorization"] = f"Bearer {self._key}"
        if self._signing is not None:
            yield from self._signing.auth_flow(request)
        else:
            yield request


def _no_key() -> ClientError:
    empty = "FORGE_API_KEY" in os.environ and not os.environ["FORGE_API_KEY"].strip()
    return ClientError(
        "FORGE_API_KEY is empty" if empty else "a server is configured, but no API key",
        hint="run `forge login`, set FORGE_API_KEY, or pass --api-key-file; an admin creates a key"
        " with `forge key create`",
        code="api_key_missing",
    )

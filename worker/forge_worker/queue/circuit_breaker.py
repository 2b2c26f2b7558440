"""Circuit breakers around servers and the database, with exponential back-off."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import uniform
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

import structlog
from forge_schema.database.pool import Database, DatabaseUnreachable, Row
from forge_schema.model.errors import ForgeError

FIRST_PAUSE_S = 0.5
# While one request tries a server again, for so long at most, no other waits for it.
TRIAL_S = 5.0
T = TypeVar("T")

# SQLSTATEs of a database that is unavailable: lost connections, no resources, shutdown, read-only.
# Any other error is an answer.
AWAY = ("08", "53", "57P", "25006")

log = structlog.get_logger(__name__)


class ServerUnreachable(DatabaseUnreachable):
    """No server answers; callers wait as for the database behind it."""

    code = "server_unreachable"


class CircuitOpen(ServerUnreachable):
    """All servers are backing off; the failure was already logged."""


class NotAnswered(Exception):
    """One server did not answer; `sent` tells whether it may have acted on the request.

    `rest_s` is the pause in seconds that it asked for, if any.
    """

    def __init__(self, why: str, *, sent: bool, rest_s: float = 0.0) -> None:
        super().__init__(why)
        self.sent = sent
        self.rest_s = rest_s


@dataclass(slots=True)
class Server:
    """One server's breaker: failures in a row, the last one's time, and the end of its pause."""

    url: str
    failures: int = 0
    failed_at: float = 0.0
    rests_until: float = 0.0


class Servers:
    """Ask the first of several servers that is not backing off, up to `longest_pause_s` seconds.

    A server that fails is skipped until its pause ends, so the first is preferred again then.
    While all are backing off, requests fail at once instead of waiting for a connection.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        longest_pause_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._servers = [Server(url) for url in urls]
        self._longest_pause_s = longest_pause_s
        self._clock = clock
        self._lock = Lock()
        self._last = self._servers[0]
        self._why = ""

    def ask(
        self, question: Callable[[str], T], *, repeatable: bool = True, counts: bool = True
    ) -> T:
        """Return the first answer.

        Args:
            question: asks the server at a URL; raises NotAnswered.
            repeatable: whether a second server may be asked what a first one may have done.
            counts: whether no answer opens the breaker; if not, no other server is asked.

        Raises:
            ServerUnreachable: there is none.
            ForgeError: what the question raised, which is an answer too.
        """
        asked: list[Server] = []
        for server in self._due():
            asked.append(server)
            began = self._clock()
            try:
                answer = question(server.url)
            except NotAnswered as error:
                if not counts:
                    raise ServerUnreachable(f"no answer from {server.url}: {error}") from error
                self._failed(server, error, began)
                if error.sent and not repeatable:
                    break
            except ForgeError:
                self._answered(server)
                raise
            else:
                self._answered(server)
                return answer
        names = " and ".join(server.url for server in asked or self._servers)
        raise (ServerUnreachable if asked else CircuitOpen)(
            f"no answer from {names}: {self._why}",
            hint="check the URL, that it runs, and that this machine may reach it",
        )

    def within(self, longest_pause_s: float) -> None:
        """Shorten the longest pause."""
        self._longest_pause_s = min(self._longest_pause_s, longest_pause_s)

    def awake(self) -> None:
        """Check that at least one server may be asked.

        Raises:
            CircuitOpen: all of them are backing off.
        """
        if all(server.rests_until > self._clock() for server in self._servers):
            raise CircuitOpen(f"left alone for a moment: {self._why}")

    def _due(self) -> Iterator[Server]:
        for server in self._servers:
            with self._lock:
                now = self._clock()
                due = server.rests_until <= now
                if due and server.failures:
                    server.rests_until = now + TRIAL_S
            if due:
                yield server

    def _failed(self, server: Server, error: NotAnswered, began: float) -> None:
        with self._lock:
            if began < server.failed_at:
                # Of several concurrent requests that failed, only the first counts.
                return
            self._why = str(error)
            server.failures += 1
            server.failed_at = self._clock()
            pause_s = min(self._longest_pause_s, FIRST_PAUSE_S * 2.0 ** min(server.failures, 20))
            pause_s = max(pause_s * uniform(0.5, 1.0), error.rest_s)  # noqa: S311 - no secret
            server.rests_until = self._clock() + pause_s
        log.warning(
            "server does not answer", url=server.url, why=str(error), again_in_s=round(pause_s, 1)
        )

    def _answered(self, server: Server) -> None:
        with self._lock:
            back, moved = server.failures > 0, server is not self._last
            server.failures, server.rests_until, self._last = 0, 0.0, server
        if back or moved:
            log.info("speaking to server", url=server.url)


class BreakerDatabase(Database):
    """A database behind a circuit breaker: one thread at a time retries, the others fail fast.

    Args:
        url: as of Database.
        longest_pause_s: longest pause, in seconds.
        **options: as of Database.
    """

    def __init__(self, url: str, *, longest_pause_s: float, **options: Any) -> None:  # noqa: ANN401  Database has their types
        super().__init__(url, **options)
        self._breaker = Servers(["the database"], longest_pause_s=longest_pause_s)
        self.awake = self._breaker.awake

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:
        """As of Database.

        Raises:
            CircuitOpen: it is backing off.
            DatabaseUnreachable: it does not answer.
        """
        ask = partial(super().rows, name, again=again, **params)
        return self._breaker.ask(lambda _: _answer(ask))


def _answer(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except DatabaseUnreachable as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state is None or state.startswith(AWAY):
            raise NotAnswered(error.message, sent=True) from error
        raise

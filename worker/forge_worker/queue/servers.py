"""Which of several servers is asked: the first in the list that answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import uniform
from threading import Lock
from time import monotonic
from typing import TypeVar

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError

T = TypeVar("T")

FIRST_PAUSE_S = 0.5
# A server that is tried again has this long to itself: nobody else waits for it meanwhile.
TRIAL_S = 5.0

log = structlog.get_logger(__name__)


class ServerUnreachable(DatabaseUnreachable):
    """No server answers; it is waited for as for the database behind it."""

    code = "server_unreachable"


class ServersRest(ServerUnreachable):
    """None was asked, since all of them failed a moment ago, which was said then."""


class NotAnswered(Exception):
    """One server did not answer; `sent` tells whether it may have done what was asked.

    `rest_s` is how many seconds it wants to be left alone, where it said so.
    """

    def __init__(self, why: str, *, sent: bool, rest_s: float = 0.0) -> None:
        super().__init__(why)
        self.sent = sent
        self.rest_s = rest_s


@dataclass(slots=True)
class Server:
    """One server, how often it failed in a row and when last, and until when it is left alone."""

    url: str
    failures: int = 0
    failed_at: float = 0.0
    rests_until: float = 0.0


class Servers:
    """Servers of one queue; one that fails rests, longer each time, up to `longest_pause_s`.

    Who rests is passed over. So the first is preferred again once it has rested, and when all
    rest, nobody waits for a connection that will not come.
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
            counts: whether a server that does not answer this rests; if not, no other is asked.

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
        raise (ServerUnreachable if asked else ServersRest)(
            f"no answer from {names}: {self._why}",
            hint="check the URL, that it runs, and that this machine may reach it",
        )

    def within(self, longest_pause_s: float) -> None:
        """Have no server rest longer than this."""
        self._longest_pause_s = min(self._longest_pause_s, longest_pause_s)

    def awake(self) -> None:
        """Go on if one of them may be asked.

        Raises:
            ServersRest: they all rest.
        """
        if all(server.rests_until > self._clock() for server in self._servers):
            raise ServersRest(f"left alone for a moment: {self._why}")

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
                # Of many that were on their way together, the first has told of it.
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

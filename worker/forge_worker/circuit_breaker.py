"""Circuit breakers around servers and the database, with exponential back-off."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from random import uniform
from threading import Lock
from time import monotonic
from typing import TypeVar

import structlog
from forge_schema.database.pool import AccessRefused, DatabaseUnreachable
from forge_schema.http_client import trust_hint
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.proxies import ProxyUnusable

# Many tries would change nothing, and might lock the worker out.
FIRST_REFUSED_S, LONGEST_REFUSED_S = 5.0, 120.0

T = TypeVar("T")

FIRST_PAUSE_S = 0.5
# The thread that tries again has this long; the others do not wait for it.
TRIAL_S = 5.0
# SQLSTATEs of a database that is unavailable: lost connections, no resources, shutdown, read-only.
# Any other error is an answer.
AWAY = ("08", "53", "57P", "25006")

log = structlog.get_logger(__name__)


class Refusals:
    """What refuses this worker now, and why. Thread-safe.

    Of all that are refused for one reason, only the first is logged. At the start nothing is: the
    program ends with the reason.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._reasons: dict[object, str] = {}
        self._met = False

    @property
    def why(self) -> str:
        """The reason, or "" if nothing refuses it."""
        with self._lock:
            return next(iter(self._reasons.values()), "")

    def add(self, who: object, why: str) -> None:
        with self._lock:
            first = self._met and not self._reasons
            self._reasons[who] = why
        if first:
            longest = duration_text(LONGEST_REFUSED_S)
            log.error("queue_refuses", why=why, note=f"retried after up to {longest}, not logged")

    def met(self) -> None:
        """Note that the queue has let this worker in once."""
        self._met = True

    def remove(self, who: object) -> None:
        with self._lock:
            over = self._reasons.pop(who, None) is not None and not self._reasons
        if over:
            log.info("queue_accepts")


class ServerUnreachable(DatabaseUnreachable):
    """No server answers; callers wait as for the database behind it."""


class CircuitOpen(ServerUnreachable):
    """All servers are backing off; the failure was already logged."""

    code = ServerUnreachable.code


class QueueRefused(CircuitOpen):
    """The queue refuses this worker until a person changes something; `Refusals` logs it."""


class NotAnswered(Exception):
    """One server did not answer; `sent` tells whether it may have acted on the request.

    `rest_s` is the pause in seconds that it asked for, if any. `refused` says that it cannot be
    spoken to until a person changes something.
    """

    def __init__(self, why: str, *, sent: bool, rest_s: float = 0.0, refused: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.rest_s = rest_s
        self.refused = refused


class CircuitBreaker:
    """One server, with exponential back-off of up to `longest_pause_s`; from any thread.

    Once it has rested, one thread at a time tries it again.
    """

    def __init__(
        self,
        url: str,
        *,
        longest_pause_s: float,
        refusals: Refusals | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.url = url
        self.longest_pause_s = longest_pause_s
        self._refusals = refusals or Refusals()
        self.failures = 0
        self.refused = False
        self.rests_until = 0.0
        self.why = ""
        self._failed_at = 0.0
        self._clock = clock
        self._lock = Lock()

    @property
    def rests(self) -> bool:
        return self.rests_until > self._clock()

    def admits(self) -> bool:
        """Tell whether the caller may ask it now."""
        with self._lock:
            now = self._clock()
            if self.rests_until > now:
                return False
            if self.failures:
                self.rests_until = now + TRIAL_S
            return True

    def failed(self, why: str, began: float, *, rest_s: float = 0.0, refused: bool = False) -> bool:
        """Have it rest; False for a request that set out before the last failure."""
        with self._lock:
            if began < self._failed_at:
                # Of many that were on their way together, the first has counted.
                return False
            self.why, self.refused = why, refused
            self.failures += 1
            self._failed_at = self._clock()
            first_s, longest_s = FIRST_PAUSE_S, self.longest_pause_s
            if refused:
                first_s, longest_s = FIRST_REFUSED_S, LONGEST_REFUSED_S
            pause_s = min(longest_s, first_s * 2.0 ** min(self.failures, 20))
            pause_s = max(pause_s * uniform(0.5, 1.0), rest_s)  # noqa: S311 - no secret
            self.rests_until = self._clock() + pause_s
        if refused:
            self._refusals.add(self, why)
        else:
            log.warning("server_unreachable", url=self.url, why=why, again_in_s=round(pause_s, 1))
        return True

    def retry(self) -> None:
        """End its rest, because what failed has changed."""
        with self._lock:
            self.rests_until = 0.0

    def answered(self, began: float = inf) -> bool:
        """Close the circuit; True if it had failed before.

        A request that set out before the last failure, at `began`, closes nothing.
        """
        with self._lock:
            if began < self._failed_at:
                return False
            back = self.failures > 0
            self.failures, self.rests_until, self.refused = 0, 0.0, False
        self._refusals.remove(self)
        return back

    def check(self) -> None:
        """Return if it may be asked; `CircuitOpen` if it is backing off."""
        if self.rests:
            raise CircuitOpen(f"not asked again yet: {self.why}")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Surround one statement of a database.

        Raises:
            CircuitOpen: it is backing off.
            QueueRefused: it does not let this worker in.
            ServerUnreachable: it does not answer.
        """
        if not self.admits():
            if self.refused:
                raise QueueRefused(self.why)
            raise no_answer(CircuitOpen, [self.url], self.why)
        began = self._clock()
        try:
            yield
        except AccessRefused as error:
            self.failed(error.message, began, refused=True)
            raise QueueRefused(error.message, hint=error.hint) from error
        except DatabaseUnreachable as error:
            state = getattr(error.__cause__, "sqlstate", None)
            if state is not None and not state.startswith(AWAY):
                self._speak()
                raise
            self.failed(error.message, began)
            raise no_answer(ServerUnreachable, [self.url], self.why) from error
        except ForgeError:
            self._speak()
            raise
        self._speak()

    def _speak(self) -> None:
        if self.answered():
            log.info("server_chosen", url=self.url)


REACH = "check the URL, that it runs, and that this machine may reach it"
TRUST = "name its authority's certificates with --tls-ca, and check the host name in the URL"


def no_answer(kind: type[ServerUnreachable], urls: list[str], why: str) -> ServerUnreachable:
    """Return the error about servers of which none answers."""
    return kind(
        f"no answer from {' and '.join(urls)}: {why}",
        hint=trust_hint(why, TRUST) if kind is QueueRefused else REACH,
    )


class Servers:
    """Servers of one queue, each behind a circuit breaker.

    One that rests is passed over. So the first is preferred again once it has rested, and when
    all rest, nobody waits for a connection that will not come.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        longest_pause_s: float,
        refusals: Refusals | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.refusals = refusals or Refusals()
        self._servers = [
            CircuitBreaker(
                url, longest_pause_s=longest_pause_s, refusals=self.refusals, clock=clock
            )
            for url in urls
        ]
        self._clock = clock
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
            QueueRefused: none can be spoken to until a person changes something.
            ForgeError: what the question raised, which is an answer too.
        """
        asked: list[str] = []
        for server in self._servers:
            if not server.admits():
                continue
            asked.append(server.url)
            began = self._clock()
            try:
                answer = question(server.url)
            except NotAnswered as error:
                if not counts:
                    raise ServerUnreachable(f"no answer from {server.url}: {error}") from error
                rest_s, refused = error.rest_s, error.refused
                if server.failed(str(error), began, rest_s=rest_s, refused=refused):
                    self._why = str(error)
                if error.sent and not repeatable:
                    break
            except ProxyUnusable:
                raise
            except ForgeError:
                self._answered(server)
                raise
            else:
                self._answered(server)
                return answer
        kind = ServerUnreachable if asked else CircuitOpen
        kind = QueueRefused if all(server.refused for server in self._servers) else kind
        raise no_answer(kind, asked or [server.url for server in self._servers], self._why)

    def within(self, longest_pause_s: float) -> None:
        """Have no server rest longer than this."""
        for server in self._servers:
            server.longest_pause_s = min(server.longest_pause_s, longest_pause_s)

    def _answered(self, server: CircuitBreaker) -> None:
        back, moved, self._last = server.answered(), server is not self._last, server
        if back or moved:
            log.info("server_chosen", url=server.url)

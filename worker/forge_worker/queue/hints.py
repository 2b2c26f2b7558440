"""Hints of new work or of requests for a job: from the database, or over HTTP from a server.

A hint can be lost at any time, so every user of hints also polls now and then.
"""

from collections.abc import Callable
from functools import partial
from random import uniform
from time import monotonic

import httpx
import psycopg
import structlog
from forge_schema.database.connections import KEEPALIVE, LISTEN
from forge_schema.database.pool import AccessRefused, explained, explicable
from forge_schema.protocol.answers import Hints
from forge_schema.wake import ANY, ASKED, BACK, SHELL, Hint
from httpx_sse import EventSource
from pydantic import ValidationError

from forge_worker.circuit_breaker import CircuitBreaker, NotAnswered, QueueRefused, Refusals
from forge_worker.loop import AFTER_FAILURE_S, Loop
from forge_worker.queue.http.session import PATH, Session, checked, not_answered

QUIET_S = 5.0
EVENTS = "text/event-stream"
# Streams are pinged every 10 s; a stream that is silent for 30 s is blocked somewhere.
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# How long to use long polling before trying a stream again.
NO_STREAM_S = 600.0
# How long to rely on plain polls if the server does not wait either, before trying again.
NO_WAIT_S = 60.0
# Longest random pause between two streams, so that workers do not reconnect all at once.
AGAIN_S = 1.0
WAIT_S = 20.0

log = structlog.get_logger(__name__)


class Listener(Loop):
    """Keep one connection open; call back for every hint, and once after connecting.

    Of the hints of jobs, `news` is told of all, and `work` of those that `wakes` accepts; `called`
    is told of shells.
    """

    name = "listen"

    def __init__(
        self,
        url: str,
        *,
        work: Callable[[], None],
        asked: Callable[[str], None],
        awake: Callable[[], None] = lambda: None,
        back: Callable[[], None] = lambda: None,
        news: Callable[[], None] = lambda: None,
        wakes: Callable[[Hint], bool] = lambda _: True,
        called: Callable[[Hint], None] = lambda _: None,
        refusals: Refusals | None = None,
    ) -> None:
        super().__init__(AFTER_FAILURE_S)
        # Rests only while it is refused; other connections may still be open.
        self._entrance = CircuitBreaker("hints", longest_pause_s=0.0, refusals=refusals)
        self._url = url
        self._awake = awake
        self._work = work
        self._back = back
        self._news = news
        self._wakes = wakes
        self._asked = asked
        self._called = called

    def step(self) -> None:
        self._awake()
        self._entrance.check()
        try:
            self._listen()
        except psycopg.Error as error:
            if not explicable(error):
                raise
            fault = explained(error, self._url)
            if isinstance(fault, AccessRefused):
                self._entrance.failed(fault.message, monotonic(), refused=True)
                raise QueueRefused(fault.message) from error
            raise fault from error

    def _listen(self) -> None:
        with psycopg.connect(self._url, autocommit=True, **KEEPALIVE) as connection:
            self._entrance.answered()
            connection.execute(LISTEN)
            self._heed(ANY)
            while not self.ending:
                for hint in connection.notifies(timeout=QUIET_S, stop_after=1):
                    self._heed(Hint.read(hint.payload))

    def _heed(self, hint: Hint) -> None:
        if hint.kind == ASKED:
            for worker_id in hint.workers:
                self._asked(str(worker_id))
            return
        if hint.kind == SHELL:
            self._called(hint)
            return
        if hint.kind == BACK:
            self._back()
        self._news()
        if self._wakes(hint):
            self._work()

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """End the loop without waiting for the next hint."""
        self._ending.set()


class HttpHints(Loop):
    """Call back for every hint, and once after connecting."""

    name = "hints"

    def __init__(
        self,
        session: Session,
        *,
        work: Callable[[], None],
        asked: Callable[[], None],
        called: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(NO_WAIT_S)
        self._session = session
        self._callbacks = {"ready": work, "asked": asked}
        self._called = called
        self._no_stream_until = 0.0

    def step(self) -> None:
        """Receive hints for as long as the servers send any."""
        while not self.ending:
            streams = monotonic() > self._no_stream_until
            kinds = f"{EVENTS}, application/json" if streams else "application/json"
            hints = self._next(kinds)
            for kind in hints.items:
                self._call_back(kind)
            if not hints.wait_s:
                return

    def _next(self, kinds: str) -> Hints:
        try:
            return self._session.ask(partial(self._hear, accept=kinds), repeatable=False)
        except RuntimeError:
            # The worker is leaving, and has closed its connections.
            if self.ending:
                return Hints()
            raise

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """End the loop without waiting for the server's answer."""
        self._ending.set()
        self.wake()

    def _hear(self, url: str, *, accept: str) -> Hints:
        headers = {**self._session.headers, "Accept": accept, "Cache-Control": "no-store"}
        place, client = f"{url}{PATH}/stream", self._session.client
        params = {"wait_s": WAIT_S}
        try:
            with client.stream(
                "GET", place, headers=headers, params=params, timeout=TIMEOUT
            ) as response:
                return self._heard(response)
        except httpx.RequestError as error:
            if isinstance(error, httpx.ReadTimeout) and EVENTS in accept:
                self._no_stream_until = monotonic() + NO_STREAM_S
                log.info("hint_stream_blocked", note="polling instead")
                return Hints(wait_s=WAIT_S)
            raise not_answered(error) from error

    def _heard(self, response: httpx.Response) -> Hints:
        if not response.is_success:
            response.read()
        checked(response)
        if response.headers.get("Content-Type", "").startswith(EVENTS):
            self._follow(response)
            return Hints(wait_s=WAIT_S)
        try:
            return Hints.model_validate_json(response.read())
        except ValidationError as error:
            raise NotAnswered("the server that answers is not a forge-server", sent=True) from error

    def _follow(self, response: httpx.Response) -> None:
        # Hints sent before the connection were missed.
        for callback in self._callbacks.values():
            callback()
        try:
            for event in EventSource(response).iter_sse():
                self._call_back(event.event)
                if self.ending:
                    return
        except httpx.ReadTimeout:
            raise
        except httpx.RequestError:
            # Cut off, perhaps by a proxy; the next request shows whether the server is reachable.
            pass
        self._ending.wait(uniform(AGAIN_S / 5, AGAIN_S))  # noqa: S311 - no secret hangs on it

    def _call_back(self, kind: str) -> None:
        name, _, shell = kind.partition(":")
        if name == SHELL:
            self._called(shell)
        callback = self._callbacks.get(kind)
        if callback is not None:
            callback()

"""The listener: hints from the database about new work or requests for a job.

A hint can be lost at any time, so every user of hints also polls now and then.
"""

from collections.abc import Callable
from time import monotonic

import psycopg
from forge_schema.database.connections import KEEPALIVE
from forge_schema.database.pool import AccessRefused, explained, explicable
from forge_schema.wake import ANY, ASKED, BACK, SHELL, Hint

from forge_worker.circuit_breaker import CircuitBreaker, QueueRefused, Refusals
from forge_worker.loop import AFTER_FAILURE_S, Loop

QUIET_S = 5.0


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
            connection.execute("LISTEN forge")
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

"""The listener: hints from the database about new work or requests for a job.

A hint can be lost at any time, so every user of hints also polls now and then.
"""

from collections.abc import Callable

import psycopg
from forge_schema.database.pool import explained, explicable
from forge_schema.database.start import KEEPALIVE

from forge_worker.loop import AFTER_FAILURE_S, Loop

QUIET_S = 5.0


class Listener(Loop):
    """Keep one connection open; call back for every hint, and once after connecting."""

    name = "listen"

    def __init__(
        self,
        url: str,
        *,
        work: Callable[[], None],
        asked: Callable[[str], None],
        awake: Callable[[], None] = lambda: None,
        back: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(AFTER_FAILURE_S)
        self._url = url
        self._awake = awake
        self._work = work
        self._back = back
        self._asked = asked

    def step(self) -> None:
        self._awake()
        try:
            self._listen()
        except psycopg.Error as error:
            if not explicable(error):
                raise
            raise explained(error, self._url) from error

    def _listen(self) -> None:
        with psycopg.connect(self._url, autocommit=True, **KEEPALIVE) as connection:
            connection.execute("LISTEN forge")
            self._work()
            while not self.ending:
                for hint in connection.notifies(timeout=QUIET_S, stop_after=1):
                    self._heed(hint.payload)

    def _heed(self, payload: str) -> None:
        kind, _, worker_id = payload.partition(":")
        if kind == "asked":
            self._asked(worker_id)
        else:
            if kind == "back":
                self._back()
            self._work()

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  nothing is waited for
        """End the loop without waiting for the next hint."""
        self._ending.set()

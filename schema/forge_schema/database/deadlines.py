"""Close connections that wait too long for an answer.

A stopped server, or a proxy that drops data, keeps the connection alive. Then no timeout of the
server or of TCP ends the wait.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Any

import psycopg

LOOKS_PER_LIMIT = 4


class AwaitedAnswers:
    """The connections that are waiting for an answer, watched by a thread once started.

    Args:
        limit_s: how long an answer may take, in seconds; longer than the server's own timeouts.
        clock: returns the time in seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._since: dict[psycopg.Connection[Any], float] = {}
        self._ending = Event()

    def start(self) -> None:
        self._ending.clear()
        Thread(target=self._look, name="answers", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def awaited(self, connection: psycopg.Connection[Any]) -> None:
        """Record that a statement begins."""
        self._since[connection] = self._clock()

    def heard(self, connection: psycopg.Connection[Any]) -> None:
        """Record that the statement has ended."""
        self._since.pop(connection, None)

    def break_off(self) -> int:
        """Close connections that have waited too long, which wakes their threads; count them."""
        now = self._clock()
        # Other threads begin and end meanwhile; copying is atomic.
        waiting = self._since.copy()
        late = [c for c, since in waiting.items() if now - since > self._limit_s]
        for connection in late:
            _hang_up(connection)
        return len(late)

    def _look(self) -> None:
        while not self._ending.wait(self._limit_s / LOOKS_PER_LIMIT):
            self.break_off()


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    # libpq waits on the socket itself, so only closing the socket wakes the thread.
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)

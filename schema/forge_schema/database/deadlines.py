"""Answers that do not come: a connection that waits for one too long is broken off.

A server that is stopped, or a proxy that swallows, keeps the connection alive: then no time-out of
the server's nor of TCP's ever ends the wait.
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


class Answers:
    """The connections that wait now; looked through by a thread of its own once started.

    Args:
        limit_s: how long an answer may take, in seconds; longer than the server's own time-outs.
        clock: tells the seconds.
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
        """Note that a statement begins."""
        self._since[connection] = self._clock()

    def heard(self, connection: psycopg.Connection[Any]) -> None:
        """Note that it is over."""
        self._since.pop(connection, None)

    def break_off(self) -> int:
        """Break off what has waited too long, so that who waits hears of it; return how many."""
        now = self._clock()
        # Others begin and end meanwhile; a copy is made at one go.
        waiting = self._since.copy()
        late = [c for c, since in waiting.items() if now - since > self._limit_s]
        for connection in late:
            _hang_up(connection)
        return len(late)

    def _look(self) -> None:
        while not self._ending.wait(self._limit_s / LOOKS_PER_LIMIT):
            self.break_off()


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    # libpq waits on the socket itself, in whichever thread: only the socket's end wakes it.
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)

"""A tracker's run: the name by which attempts find it again, and what it logs during an outage."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import deque
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forge_worker import job

if TYPE_CHECKING:
    from collections.abc import Callable

# Names the job among those of all queues.
NAME = "FORGE_RUN"

# How long the server is left alone after it did not answer.
PAUSE_S = 30.0
# Requests that wait; the oldest are given up first.
MOST = 100_000


def name() -> str | None:
    """Return the name of the job's run, the same in every attempt; None outside Forge."""
    return os.environ.get(NAME)


def group() -> str | None:
    """Return the experiment, to which similar jobs belong."""
    return os.environ.get("FORGE_EXPERIMENT")


def parameters() -> dict[str, object]:
    """Return the job's parameters."""
    values = json.loads(os.environ.get("FORGE_PARAMETERS") or "{}")
    return values if isinstance(values, dict) else {}


def link(tracker: str, url: str | None) -> None:
    """Report the address of the run, without any credentials in it."""
    parts = urlsplit(url or "")
    if parts.scheme in ("http", "https"):
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        job.report(**{tracker: address.geturl()})


def note(message: str) -> None:
    """Write a line into the job's log."""
    sys.stderr.write(f"forge: {message}\n")
    sys.stderr.flush()


def before_a_stop(finish: Callable[[], object], seconds: float) -> None:
    """Have something finished, for so long at most, before a SIGTERM ends the program.

    A program with a handler of its own decides for itself: what it leaves unfinished is finished
    when it exits. Main thread only.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    own = os.getpid()

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # A process that was forked has only a copy of it.
        if os.getpid() == own:
            # The main thread may hold the library's locks.
            thread = threading.Thread(target=finish, daemon=True)
            thread.start()
            thread.join(seconds)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)


class TrackerOutage:
    """Requests to one server. Thread-safe.

    Args:
        server: its name and address, for people.
        away: tells whether an error means that the server does not answer.
        dropped: sees a request that is not sent now.
    """

    def __init__(
        self, server: str, away: Callable[[Exception], bool], dropped: Callable[..., object]
    ) -> None:
        self._server, self._away, self._dropped = server, away, dropped
        self._waiting: deque[Callable[[], Any]] = deque(maxlen=MOST)
        self._quiet_until = 0.0
        self._lock = threading.RLock()

    def bridged(self, method: Callable[..., Any], *, last: bool = False) -> Callable[..., Any]:
        """Return a method that returns None instead of raising while the server is away.

        The `last` request of a program is tried however lately the server did not answer.
        """

        @wraps(method)
        def sent(*given: Any, **named: Any) -> Any:  # noqa: ANN401  the method's own
            with self._lock:
                self._waiting.append(lambda: method(*given, **named))
                answers = self._send(at_once=last)
                if self._waiting:
                    self._dropped(method.__name__, *given, **named)
                    if last:
                        self._give_up()
                return answers[-1] if answers and not self._waiting else None

        return sent

    def _send(self, *, at_once: bool) -> list[Any]:
        """Send what waits, in order, as far as the server answers; return its answers."""
        answers: list[Any] = []
        if self._quiet_until and monotonic() < self._quiet_until and not at_once:
            return answers
        while self._waiting:
            try:
                answers.append(self._waiting[0]())
            except Exception as error:
                if not self._away(error):
                    # Of a request that waited, nobody is left to hear of it.
                    self._waiting.popleft()
                    if self._waiting:
                        note(f"{self._server} refused what was logged: {error}")
                        continue
                    raise
                self._silent(error)
                break
            self._waiting.popleft()
        if not self._waiting and self._quiet_until:
            self._quiet_until = 0.0
            note(f"{self._server} answers again, and has what waited for it")
        return answers

    def _silent(self, error: Exception) -> None:
        if not self._quiet_until:
            note(f"{self._server} does not answer; what is logged is sent once it does: {error}")
        self._quiet_until = monotonic() + PAUSE_S

    def _give_up(self) -> None:
        note(
            f"{self._server} does not answer at the end. It lacks what was logged meanwhile;"
            " the job's own metrics have the numbers"
        )
        self._waiting.clear()

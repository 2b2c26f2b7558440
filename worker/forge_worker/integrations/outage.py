"""A tracker's server that is away for a while: what is logged waits for it, the job does not."""

from __future__ import annotations

import threading
from collections import deque
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any

from forge_worker.integrations import tracked

if TYPE_CHECKING:
    from collections.abc import Callable

# How long the server is left alone after it did not answer.
PAUSE_S = 30.0
# Requests that wait; the oldest are given up first.
MOST = 100_000


class Outage:
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
                        tracked.note(f"{self._server} refused what was logged: {error}")
                        continue
                    raise
                self._silent(error)
                break
            self._waiting.popleft()
        if not self._waiting and self._quiet_until:
            self._quiet_until = 0.0
            tracked.note(f"{self._server} answers again, and has what waited for it")
        return answers

    def _silent(self, error: Exception) -> None:
        if not self._quiet_until:
            tracked.note(
                f"{self._server} does not answer; what is logged is sent once it does: {error}"
            )
        self._quiet_until = monotonic() + PAUSE_S

    def _give_up(self) -> None:
        tracked.note(
            f"{self._server} does not answer at the end. It lacks what was logged meanwhile;"
            " the job's own metrics have the numbers"
        )
        self._waiting.clear()

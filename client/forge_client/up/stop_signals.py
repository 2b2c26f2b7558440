"""The signals that stop a `forge up`."""

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts urgency: 1 drain, 2 stop, 3 kill. Ctrl-C adds one, SIGTERM sets at least 2."""

    def __init__(self) -> None:
        self.urgency = 0
        # A handler may interrupt the very wait that it ends, so the two must not share a lock.
        self._news: SimpleQueue[int] = SimpleQueue()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {
            signum: signal.signal(signum, self._on_signal)
            for signum in HANDLED
            # Under nohup, it outlives its terminal.
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def wait(self, timeout: float) -> bool:
        """Wait, but return early if a signal arrives; return whether any has arrived so far."""
        with suppress(Empty):
            self._news.get(timeout=timeout)
        return self.urgency > 0

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.urgency = self.urgency + 1 if signum == signal.SIGINT else max(2, self.urgency + 1)
        self._news.put(self.urgency)

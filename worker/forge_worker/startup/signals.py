"""The signals that end a worker, heeded in a thread of their own.

A handler runs between any two steps of the main thread, perhaps while that holds the very lock
which the handler would need. So once there is an agent, it only passes the number on.
"""

import signal
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def leave_at_once() -> None:
    """Have each of the signals end the process in good order while there is no agent yet.

    The first process of a container that has no handler for a signal never gets it.
    """

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    _handle(leave)


def listen(*, drain: Callable[[], None], stop: Callable[[], None]) -> None:
    """SIGINT drains, and once more stops; SIGTERM, which may be a spot notice, stops at once."""
    came: SimpleQueue[int] = SimpleQueue()
    _handle(lambda number, _: came.put(number))

    def heed() -> None:
        if came.get() == signal.SIGINT:
            drain()
            came.get()
        stop()

    Thread(target=heed, name="signals", daemon=True).start()


def _handle(handler: Handler) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        with suppress(AttributeError):  # not every system has all of them
            signal.signal(getattr(signal, name), handler)

"""The signals that end a worker, handled in their own thread.

A handler interrupts the main thread anywhere, perhaps while it holds a lock that the handler needs.
So once there is an agent, the handler only passes on the signal's number.
"""

import signal
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def leave_at_once() -> None:
    """Let each of the signals end the process cleanly while there is no agent yet.

    The first process of a container does not receive signals for which it has no handler.
    """

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    _handle(leave)


def listen(
    *, drain: Callable[[], None], stop: Callable[[], None], hand_over: Callable[[], None]
) -> None:
    """Handle signals: SIGINT drains, a second one stops; SIGTERM, as sent at preemption, stops.

    SIGUSR2 hands the jobs over to the next agent, also while the worker drains.
    """
    came: SimpleQueue[int] = SimpleQueue()
    _handle(lambda number, _: came.put(number))

    def heed() -> None:
        number = came.get()
        if number == signal.SIGINT:
            drain()
            number = came.get()
        hand_over() if number == signal.SIGUSR2 else stop()

    Thread(target=heed, name="signals", daemon=True).start()


def _handle(handler: Handler) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"):
        with suppress(AttributeError):  # not every system has all of them
            signal.signal(getattr(signal, name), handler)

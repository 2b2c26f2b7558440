"""Threads that serve one call after another: the jobs, and the steps of their loops."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread, current_thread

# How long a thread waits for another call.
IDLE_S = 10.0

# A thread's name during a call, and the call.
Work = tuple[str, Callable[[], None]]


class SpareThreads:
    """Makes each call in a thread that has none; one whose call has ended may get another.

    Starting a thread takes longer than a job's share of a claim. They are daemon threads: a hanging
    call must not keep the process alive when the machine goes.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []

    @property
    def idle(self) -> int:
        """How many threads wait for a call."""
        return len(self._idle)

    def start(self, name: str, call: Callable[[], None]) -> None:
        """Have a thread make a call.

        Raises:
            RuntimeError: the machine cannot start another thread.
        """
        try:
            idle = self._idle.pop()
        except IndexError:
            Thread(target=self._serve, args=((name, call),), daemon=True).start()
        else:
            idle.put((name, call))

    def _serve(self, work: Work | None) -> None:
        mine: SimpleQueue[Work] = SimpleQueue()
        while work is not None:
            current_thread().name, call = work
            call()
            current_thread().name = "idle"
            # An ended job's folders and results are not kept for the next one.
            del call, work
            self._idle.append(mine)
            work = self._next(mine)

    def _next(self, mine: SimpleQueue[Work]) -> Work | None:
        try:
            return mine.get(timeout=IDLE_S)
        except Empty:
            try:
                self._idle.remove(mine)
            except ValueError:
                # It has just been chosen.
                return mine.get()
            return None

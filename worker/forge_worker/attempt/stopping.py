"""The event that an attempt must stop."""

import os
import weakref
from contextlib import suppress
from threading import Event, Lock


class Stopping(Event):
    """An event that also ends a wait for a descriptor, such as that of a job's process."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._ends: list[int] = []
        weakref.finalize(self, _close, self._ends)

    def set(self) -> None:
        super().set()
        with self._lock:
            self._ring()

    def descriptor(self) -> int:
        """Return a descriptor that can be read from once the event is set."""
        with self._lock:
            if not self._ends:
                self._ends += os.pipe()
                os.set_blocking(self._ends[1], False)
                if self.is_set():
                    self._ring()
            return self._ends[0]

    def _ring(self) -> None:
        if self._ends:
            with suppress(BlockingIOError):
                os.write(self._ends[1], b"!")


def _close(ends: list[int]) -> None:
    for end in ends:
        os.close(end)

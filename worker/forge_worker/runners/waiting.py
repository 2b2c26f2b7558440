"""The shared containers that wait for their next job, none of them for long."""

from __future__ import annotations

import time
from threading import Lock, Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from forge_worker.runners.shared_container import SharedContainer


class Waiting:
    """Keeps containers for `idle_s` seconds each; `discard` takes those that nobody came for."""

    def __init__(self, idle_s: float, discard: Callable[[SharedContainer], None]) -> None:
        self._idle_s = idle_s
        self._discard = discard
        # In the order in which they came, which is that in which they go.
        self._idle: list[tuple[float, SharedContainer]] = []
        self._lock = Lock()
        # One for all; None while nothing waits.
        self._timer: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._idle)

    def take(self, key: Hashable) -> SharedContainer | None:
        """Return the container with this key that came last, or None."""
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at][1].key == key:
                    return self._idle.pop(at)[1]
        return None

    def put(self, container: SharedContainer) -> None:
        """Have a container wait; once closed, it goes at once."""
        with self._lock:
            if not self._closed and self._idle_s > 0:
                self._idle.append((time.monotonic() + self._idle_s, container))
                if self._timer is None:
                    self._wind()
                return
        self._discard(container)

    def close(self) -> None:
        """Discard all, and have none wait from now on."""
        with self._lock:
            self._closed = True
            left, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
        for _, container in left:
            self._discard(container)

    def _wind(self) -> None:
        self._timer = Timer(max(self._idle[0][0] - time.monotonic(), 0), self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        with self._lock:
            now = time.monotonic()
            late = [container for until, container in self._idle if until <= now]
            self._idle = self._idle[len(late) :]
            self._timer = None
            if self._idle:
                self._wind()
        for container in late:
            self._discard(container)

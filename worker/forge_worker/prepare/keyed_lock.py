"""Turns: what several attempts need is made by one of them while the others wait."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

POLL_S = 0.2


class Turns:
    """One lock for each key, for the threads of one agent."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._own = Lock()

    @contextmanager
    def of(self, key: str, while_wanted: Callable[[], None]) -> Iterator[None]:
        """Hold the key's turn while the block runs; raises what `while_wanted` does."""
        with self._own:
            lock = self._locks[key]
            self._waiting[key] += 1
        try:
            while not lock.acquire(timeout=POLL_S):
                while_wanted()
            try:
                yield
            finally:
                lock.release()
        finally:
            self._forget(key)

    def _forget(self, key: str) -> None:
        with self._own:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._locks[key]

"""What threads share is made once: Python 3.12 took the lock out of `cached_property`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from forge_schema.made_once import made_once

THREADS = 4


class Shared:
    def __init__(self) -> None:
        self.begun = 0
        self.all_here = Barrier(THREADS)

    @made_once
    def connection(self) -> object:
        self.begun += 1
        # Without a lock, the other threads begin meanwhile.
        Event().wait(0.05)
        return object()


def test_threads_that_read_it_at_once_see_the_same_object() -> None:
    shared = Shared()

    def read(_: int) -> object:
        shared.all_here.wait()
        return shared.connection

    with ThreadPoolExecutor(THREADS) as pool:
        seen = list(pool.map(read, range(THREADS)))
    assert len(set(map(id, seen))) == 1
    assert shared.begun == 1

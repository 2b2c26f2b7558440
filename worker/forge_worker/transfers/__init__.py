"""Transfers of a job's files: many at once, in a few threads that all jobs of a worker share."""

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock, Thread, get_ident
from typing import TypeVar

from forge_schema.protocol import OBJECTS
from forge_schema.storage.manifest import CHUNK_BYTES

T = TypeVar("T")

MOST_THREADS = 8
# As many connections as the S3 client keeps.
REQUESTS_AT_ONCE = 32
# How long a thread waits for another call.
IDLE_S = 10.0
# A call holds at most one chunk, and all together at most this share of the machine's memory.
MEMORY_SHARE = 1 / 16


class Transfers:
    """Makes calls in a few threads.

    A caller queues only as many calls as there are threads, so that nobody waits for all of
    another's. They are daemon threads: a store that hangs must not keep the process alive.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = Lock()
        self._started = self._calls = 0
        # The threads that wait for calls.
        self._callers: Counter[int] = Counter()

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Make calls, and yield their results in the order in which they end.

        The first error is raised, once the calls that had begun are over.
        """
        left, running, ended = iter(calls), set[Future[T]](), SimpleQueue[Future[T]]()
        caller = get_ident()
        with self._lock:
            self._callers[caller] += 1
        try:
            while True:
                for call in islice(left, self.threads - len(running)):
                    running.add(future := self._begin(call))
                    future.add_done_callback(ended.put)
                if not running:
                    return
                running.remove(transfer := ended.get())
                yield transfer.result()
        finally:
            wait([future for future in running if not future.cancel()])
            with self._lock:
                self._callers -= Counter({caller: 1})

    def busy_for_others(self, thread: int | None) -> bool:
        """Tell whether calls are made for another thread than this one."""
        with self._lock:
            return bool(self._callers.keys() - {thread})

    def _begin(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(lambda: _resolve(future, call))
            self._calls += 1
            if self._started < min(self._calls, self.threads):
                self._started += 1
                Thread(target=self._serve, name="transfer", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            try:
                call = self._queue.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._started -= 1
                        break
                continue
            call()
            del call
            with self._lock:
                self._calls -= 1
        give_back()


def give_back() -> None:
    """Give the kernel the memory that is not in use; glibc keeps what its threads have freed."""
    # Not with musl.
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resolve(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  raised again where the result is read
        future.set_exception(error)


def _threads() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(2, min(MOST_THREADS, int(memory * MEMORY_SHARE) // CHUNK_BYTES))


TRANSFERS = Transfers(_threads())


# A small object takes little more than the time that the store needs to answer.
REQUESTS = Transfers(REQUESTS_AT_ONCE)


def batches(sized: Iterable[tuple[T, int]], most: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split into lists of at most `OBJECTS` items and `most` bytes, or of one larger item."""
    batch: list[T] = []
    room = most
    for item, size in sized:
        if batch and (size > room or len(batch) == OBJECTS):
            yield batch
            batch, room = [], most
        batch.append(item)
        room -= size
    if batch:
        yield batch

"""The hub: one thread receives the database's hints for all requests that wait in this process.

A hint may be lost at any time, so waiting requests also look on their own from time to time.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from random import uniform
from threading import Event, Lock, Thread

import psycopg
import structlog
from forge_schema.database.connections import KEEPALIVE, LISTEN
from forge_schema.wake import ASKED, SHELL, Hint, Sleepers

READY = "ready"
# Nothing was listening for a while, so any hint may have been missed.
MISSED = "missed"
# This process stops, so waits end.
LEAVING = "leaving"
# Seconds within which it notices that the process stops.
QUIET_S = 1.0
# Hints this close together are merged.
TOGETHER_S = 0.05
LONGEST_PAUSE_S = 10.0
# When a worker reconnects, its previous connection may not have been closed yet.
MOST_STREAMS = 2

log = structlog.get_logger(__name__)


class Ear:
    """One coroutine that waits for hints from the hub's thread."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        self.waits = False
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()
        self._heard: set[str] = set()

    async def wait(self, timeout_s: float) -> set[str]:
        """Return the hints since the last call; an empty set after `timeout_s` seconds."""
        self.waits = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._notified.wait()
        self.waits = False
        self._notified.clear()
        heard, self._heard = self._heard, set()
        return heard

    def tell(self, hint: str) -> None:
        """Pass a hint to the coroutine. May be called from any thread."""
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._hear, hint)

    def _hear(self, hint: str) -> None:
        self._heard.add(hint)
        self._notified.set()


class Hub:
    """Listens as soon as there is an ear, and reconnects when necessary.

    Behind a pooler (not `listens`) it hears nothing: hints reach whoever holds the session.
    `new_work` is called whenever jobs became ready, whoever can run them.
    """

    def __init__(
        self,
        url: str,
        stopping: Event,
        *,
        listens: bool = True,
        new_work: Callable[[], None] = lambda: None,
    ) -> None:
        self.sleepers = Sleepers(hears=listens)
        self._new_work = new_work
        self._url = url
        self._listens = listens
        self._stopping = stopping
        self._lock = Lock()
        self._ears: set[Ear] = set()
        self._thread: Thread | None = None
        # Used only by the event loop.
        self._streams: dict[int, list[Ear]] = {}

    @property
    def waiting(self) -> int:
        """The number of claims that have looked and wait for a hint."""
        with self._lock:
            return sum(ear.waits for ear in self._ears)

    @contextmanager
    def stream(self, worker_id: int) -> Iterator[Ear]:
        """Lend an ear for a stream. If one worker has too many, the oldest end."""
        with self.ear(worker_id) as ear:
            streams = self._streams.setdefault(worker_id, [])
            streams.append(ear)
            for old in streams[:-MOST_STREAMS]:
                old.tell(LEAVING)
            try:
                yield ear
            finally:
                streams.remove(ear)
                if not streams:
                    self._streams.pop(worker_id, None)

    @contextmanager
    def ear(self, worker_id: int) -> Iterator[Ear]:
        """Lend an ear for hints of work and for those about one worker."""
        ear = Ear(worker_id)
        with self._lock:
            self._ears.add(ear)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="hub", daemon=True)
                self._thread.start()
        if self._stopping.is_set():
            ear.tell(LEAVING)
        try:
            yield ear
        finally:
            with self._lock:
                self._ears.discard(ear)

    def join(self, timeout_s: float = 2 * QUIET_S) -> None:
        """Wait for the hub's thread to end when the process stops."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        if not self._listens:
            self._stopping.wait()
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, **KEEPALIVE) as connection:
                    failures = 0
                    self._listen(connection)
            except psycopg.Error as error:
                failures += 1
                log.warning("hints_unheard", error=str(error).partition("\n")[0])
                pause_s = min(LONGEST_PAUSE_S, 2.0**failures / 4)
                self._stopping.wait(pause_s * uniform(0.5, 1.0))  # noqa: S311 - no secret hangs on it
        self._tell(LEAVING)

    def _listen(self, connection: psycopg.Connection) -> None:
        connection.execute(LISTEN)
        self.sleepers.forget()
        self._new_work()
        self._tell(MISSED)
        while not self._stopping.is_set():
            for timeout_s, stop_after in ((QUIET_S, 1), (TOGETHER_S, None)):
                heard = connection.notifies(timeout=timeout_s, stop_after=stop_after)
                for payload in {notice.payload for notice in heard}:
                    self._heed(Hint.read(payload))

    def _heed(self, hint: Hint) -> None:
        if hint.kind == ASKED:
            self._tell(ASKED, hint.workers)
            return
        if hint.kind == SHELL:
            self._tell(f"{SHELL}:{hint.shell}", hint.workers)
            return
        self._new_work()
        with self._lock:
            workers = {ear.worker_id for ear in self._ears}
        self._tell(READY, self.sleepers.woken(hint, workers))

    def _tell(self, hint: str, workers: Collection[int] | None = None) -> None:
        """Pass a hint to the ears of some workers, or to all."""
        with self._lock:
            ears = [ear for ear in self._ears if workers is None or ear.worker_id in workers]
        for ear in ears:
            ear.tell(hint)

"""The attempts that run in this worker, each with its thread."""

from collections.abc import Callable
from threading import Lock, Thread

from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import Attempt


class Running:
    """Attempts by fencing token. Thread-safe."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Attempt, Thread]] = {}
        self._lock = Lock()

    def add(self, attempt: Attempt, thread: Thread) -> None:
        """Add an attempt; an earlier attempt of the same job has lost its lease."""
        fence = attempt.fence
        with self._lock:
            earlier = [a for a, _ in self._held.values() if a.fence.job_id == fence.job_id]
            self._held[fence.token] = (attempt, thread)
        for other in earlier:
            # A job is granted again only after its lease was lost; this worker may not know yet.
            other.lose()

    def remove(self, token: int) -> None:
        with self._lock:
            del self._held[token]

    def attempts(self) -> list[Attempt]:
        with self._lock:
            return [attempt for attempt, _ in self._held.values()]

    def preparing(self) -> int:
        """Return how many attempts have not started yet."""
        return sum(one.phase is Phase.PREPARING for one in self.attempts())

    def join(self, patience_s: Callable[[], float | None]) -> None:
        """Wait for all threads, including those added meanwhile, until patience runs out."""
        while threads := self._threads():
            left_s = patience_s()
            threads[0].join(left_s)
            if left_s == 0:
                return

    def _threads(self) -> list[Thread]:
        with self._lock:
            return [thread for _, thread in self._held.values()]

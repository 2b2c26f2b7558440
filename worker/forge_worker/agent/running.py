"""The attempts that run in this worker, each with its thread."""

from collections.abc import Callable
from threading import Lock, Thread

from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import Attempt


class Running:
    """By fencing token; from any thread."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Attempt, Thread]] = {}
        self._lock = Lock()

    def add(self, attempt: Attempt, thread: Thread) -> None:
        """Take an attempt in; an earlier one of the same job is lost."""
        fence = attempt.fence
        with self._lock:
            earlier = [a for a, _ in self._held.values() if a.fence.job_id == fence.job_id]
            self._held[fence.token] = (attempt, thread)
        for other in earlier:
            # Who is granted a job again has lost it before, and may not have heard of that.
            other.lose()

    def remove(self, token: int) -> None:
        with self._lock:
            del self._held[token]

    def attempts(self) -> list[Attempt]:
        with self._lock:
            return [attempt for attempt, _ in self._held.values()]

    def preparing(self) -> int:
        """Return how many are not started yet."""
        return sum(one.phase is Phase.PREPARING for one in self.attempts())

    def join(self, patience_s: Callable[[], float | None]) -> None:
        """Wait for every thread, also for those that come meanwhile, while there is patience."""
        while threads := self._threads():
            left_s = patience_s()
            threads[0].join(left_s)
            if left_s == 0:
                return

    def _threads(self) -> list[Thread]:
        with self._lock:
            return [thread for _, thread in self._held.values()]

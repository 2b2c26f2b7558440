"""The attempts that run in this worker."""

from collections.abc import Callable
from threading import Condition
from time import monotonic

from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import LiveAttempt


class LiveAttempts:
    """Attempts by fencing token, and when the last one ended. Thread-safe."""

    def __init__(self) -> None:
        self.ended_s = monotonic()
        self._held: dict[int, LiveAttempt] = {}
        self._newest: dict[int, LiveAttempt] = {}
        self._changed = Condition()

    def add(self, attempt: LiveAttempt) -> None:
        """Add an attempt; an earlier attempt of the same job has lost its lease."""
        fence = attempt.fence
        with self._changed:
            earlier = self._newest.get(fence.job_id)
            self._held[fence.token] = self._newest[fence.job_id] = attempt
        if earlier is not None:
            # A job is granted again only after its lease was lost; this worker may not know yet.
            earlier.lose("this worker was granted the job again")

    def remove(self, token: int) -> None:
        with self._changed:
            attempt = self._held.pop(token)
            if self._newest.get(attempt.fence.job_id) is attempt:
                del self._newest[attempt.fence.job_id]
            self.ended_s = monotonic()
            self._changed.notify_all()

    def attempts(self) -> list[LiveAttempt]:
        with self._changed:
            return list(self._held.values())

    def preparing(self) -> int:
        """Return how many attempts have not started yet."""
        return [attempt.phase for attempt in self.attempts()].count(Phase.PREPARING)

    def join_preparing(self, patience_s: float) -> None:
        """Wait until every attempt has started or is gone, or patience runs out."""
        with self._changed:
            self._changed.wait_for(lambda: not self.preparing(), patience_s)

    def join(self, patience_s: Callable[[], float | None]) -> None:
        """Wait until no attempt is left, including those added meanwhile; or patience runs out."""
        with self._changed:
            while self._held:
                left_s = patience_s()
                self._changed.wait(left_s)
                if left_s == 0:
                    return

"""The phase reporter: reports an attempt's phases to the queue without delaying the attempt."""

from collections import deque
from collections.abc import Sequence
from threading import Lock
from time import monotonic

from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import Attempt
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 60.0
# Most jobs are prepared, and their output is stored, in less than this. Then the queue does not
# hear of these phases.
BRIEF_S = 0.1


class PhaseReporter(Loop):
    """Reports phases in order, and retries while the database does not answer.

    The first phase tells the queue the attempt's `devices`, so with any it is not put off.
    """

    name = "phase"

    def __init__(self, attempt: Attempt, gateway: Gateway, devices: Sequence[str]) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._gateway = gateway
        self._devices = devices
        # Each with the time from which on it is to be reported, even if another follows.
        self._untold: deque[tuple[Phase, float]] = deque()
        self._lock = Lock()

    def enter(self, phase: Phase) -> None:
        """Schedule a phase to be reported soon."""
        self._attempt.phase = phase
        brief = phase is Phase.FINISHING or (phase is Phase.PREPARING and not self._devices)
        # The queue has not been told yet that another agent has this job.
        if brief and not self._attempt.adopted:
            self._untold.append((phase, monotonic() + BRIEF_S))
            self.wake_in(BRIEF_S)
        else:
            self._untold.append((phase, 0.0))
            self.wake()

    def idle(self) -> bool:
        return not self._untold or (len(self._untold) == 1 and self._left_s() > 0)

    def pause_s(self, most_s: float | None = None) -> float:
        pause_s, left_s = super().pause_s(most_s), self._left_s()
        return min(pause_s, left_s) if left_s > 0 else pause_s

    def step(self) -> None:
        """Report the phases not reported yet, and act on the answers."""
        with self._lock:
            while not self.idle() and not self._attempt.lost:
                if self._left_s() <= 0:
                    self._tell(self._untold[0][0])
                self._untold.popleft()

    def _tell(self, phase: Phase) -> None:
        attempt = self._attempt
        standing = self._gateway.report(
            attempt.fence, phase, devices=self._devices, adopted=attempt.adopted
        )
        attempt.adopted = False
        attempt.heed(standing)

    def _left_s(self) -> float:
        """Return how long the first phase that was not reported must last to be reported."""
        return self._untold[0][1] - monotonic() if self._untold else 0.0

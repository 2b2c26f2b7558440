"""The phase reporter: reports an attempt's phases to the queue without delaying the attempt."""

from collections import deque
from collections.abc import Sequence
from threading import Lock

from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import Attempt
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 60.0


class PhaseReporter(Loop):
    """Reports phases in order, and retries while the database does not answer."""

    name = "phase"

    def __init__(self, attempt: Attempt, gateway: Gateway, devices: Sequence[str]) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._gateway = gateway
        self._devices = devices
        self._untold: deque[Phase] = deque()
        self._lock = Lock()

    def enter(self, phase: Phase) -> None:
        """Schedule a phase to be reported soon."""
        self._attempt.phase = phase
        self._untold.append(phase)
        self.wake()

    def idle(self) -> bool:
        return not self._untold

    def step(self) -> None:
        """Report the phases not reported yet, and act on the answers."""
        with self._lock:
            while self._untold and not self._attempt.lost:
                standing = self._gateway.report(
                    self._attempt.fence, self._untold[0], devices=self._devices
                )
                self._untold.popleft()
                self._attempt.heed(standing)

"""A loop in its own thread that repeats one step until it is stopped."""

from abc import ABC, abstractmethod
from random import uniform
from threading import Event, Thread

import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.circuit_breaker import CircuitOpen

AFTER_FAILURE_S = 3.0
# Checking whether the servers are still backing off is cheap.
WHILE_THEY_REST_S = 1.0

log = structlog.get_logger(__name__)


class Bell:
    """Wakes every loop that holds one of some events."""

    def __init__(self, *woken: Event) -> None:
        self._woken = woken

    def ring(self) -> None:
        for event in self._woken:
            event.set()


class Loop(ABC):
    """Calls `step` every `period_s` seconds, or at once when woken.

    A failed step is logged and tried again; only `end` stops a loop. Setting the event `woken`
    wakes it.
    """

    name = "loop"

    def __init__(self, period_s: float, *, woken: Event | None = None) -> None:
        self.period_s = period_s
        self._woken = woken or Event()
        self._ending = Event()
        self._thread: Thread | None = None

    @abstractmethod
    def step(self) -> None:
        """Do one round of work."""

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Start the next step now."""
        self._woken.set()

    def end(self, patience_s: float | None = None) -> None:
        """End the loop after its current step, and wait for that at most `patience_s` seconds."""
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(patience_s)

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    def _run(self) -> None:
        while True:
            # Cleared before the look at `_ending`: `end` sets that first, so it is never missed.
            self._woken.clear()
            if self._ending.is_set():
                return
            pause_s = self.period_s
            try:
                self.step()
            except CircuitOpen:
                # The reason was logged once for all loops.
                pause_s = min(pause_s, WHILE_THEY_REST_S)
            except Exception as error:
                expected = isinstance(error, ForgeError)
                log.warning("step_failed", loop=self.name, error=str(error), exc_info=not expected)
                pause_s = min(pause_s, AFTER_FAILURE_S)
            self._woken.wait(pause_s * uniform(0.9, 1.1))  # noqa: S311 - no secret

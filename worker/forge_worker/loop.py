"""A loop that repeats one step until it is stopped, in its own thread or in those of the rounds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import uniform
from threading import Event, Thread

import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.circuit_breaker import CircuitOpen
from forge_worker.rounds import ROUNDS, Rounds

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


class Alarm(Event):
    """An event that also wakes a loop which shares its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes: Callable[[], None] | None = None

    def set(self) -> None:
        super().set()
        if self.wakes is not None:
            self.wakes()


class Loop(ABC):
    """Calls `step` every `period_s` seconds, or at once when woken.

    A failed step is logged and tried again; only `end` stops a loop. Setting the event `woken`
    wakes it; a loop that is to share its threads needs an `Alarm`.
    """

    name = "loop"
    # Whether its steps are so rare, or so quick to repeat, that it needs no thread of its own.
    shares = False

    def __init__(self, period_s: float, *, woken: Event | None = None) -> None:
        self.period_s = period_s
        self.over = Event()
        self.quick = False
        self._woken = woken or Alarm()
        self._ending = Event()
        self._thread: Thread | None = None
        self._rounds: Rounds | None = None

    @abstractmethod
    def step(self) -> None:
        """Do one round of work."""

    def idle(self) -> bool:
        """Tell, without blocking, whether a step would find nothing to do."""
        return False

    def start(self) -> None:
        """Start in a thread of its own."""
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Start, with a step at once, in shared threads if that is enough for it."""
        if self.shares:
            self.wake()
            self.share()
        else:
            self.start()

    def share(self, *, quick: bool = False, rounds: Rounds = ROUNDS) -> None:
        """Start in threads that the loops of all jobs share; `quick` if no step ever blocks.

        The first step follows after a period, or at once if the loop was woken before.
        """
        assert isinstance(self._woken, Alarm)  # noqa: S101 - any other event would not be heard
        self.quick = quick
        self._rounds = rounds
        self._woken.wakes = lambda: rounds.wake(self)
        rounds.add(self)

    def wake(self) -> None:
        """Start the next step now."""
        self._woken.set()

    def wake_in(self, pause_s: float) -> None:
        """Start the next step after a pause, or sooner."""
        if self._rounds is None or not self._rounds.hasten(self, pause_s):
            self.wake()

    def end(self, patience_s: float | None = None) -> None:
        """End the loop after its current step, and wait for that at most `patience_s` seconds."""
        self._ending.set()
        if self._rounds is not None:
            # One that waits for its turn ends without another.
            self._rounds.drop(self)
            self.over.wait(patience_s)
            return
        self._woken.set()
        if self._thread is not None:
            self._thread.join(patience_s)

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    @property
    def awake(self) -> bool:
        return self._woken.is_set()

    def turn(self) -> float:
        """Do one step unless the loop ends, and return the pause after it, in seconds."""
        # Cleared before the look at `_ending`: `end` sets that first, so it is never missed.
        self._woken.clear()
        if self._ending.is_set():
            return 0.0
        try:
            self.step()
        except CircuitOpen:
            # The reason was logged once for all loops.
            return self.pause_s(WHILE_THEY_REST_S)
        except Exception as error:
            expected = isinstance(error, ForgeError)
            log.warning("step_failed", loop=self.name, error=str(error), exc_info=not expected)
            return self.pause_s(AFTER_FAILURE_S)
        return self.pause_s()

    def pause_s(self, most_s: float | None = None) -> float:
        """Return how long to wait for the next step."""
        period_s = self.period_s if most_s is None else min(self.period_s, most_s)
        return period_s * uniform(0.9, 1.1)  # noqa: S311 - no secret

    def _run(self) -> None:
        while True:
            pause_s = self.turn()
            if self._ending.is_set():
                return
            self._woken.wait(pause_s)

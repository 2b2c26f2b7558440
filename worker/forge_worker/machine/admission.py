"""The guard: no new job while the machine is past its limits, nor for a while after that."""

from collections.abc import Callable, Collection, Iterable
from threading import Lock
from time import monotonic
from typing import Protocol

import structlog

from forge_worker.loop import Loop
from forge_worker.machine.limits import Limits
from forge_worker.machine.observation import Observation

# The use of CPUs is counted from look to look; over less than this it says nothing.
SHORTEST_LOOK_S = 1.0

log = structlog.get_logger(__name__)


class Looks(Protocol):
    """Whoever can say how the machine is."""

    def look(self, gpus: Iterable[str] = ()) -> Observation:
        """Return how the machine is now."""

    def disk_free_mb(self) -> int:
        """Return what is free now where jobs write, MiB."""


class Guard(Loop):
    """Looks at the machine every `period_s` seconds; `reason` is why it takes no jobs, or "".

    Running jobs are left alone. Past a limit the machine is constrained at once; it is no longer
    when all was within the limits for `cooldown_s` seconds.
    """

    name = "guard"

    def __init__(
        self,
        limits: Limits,
        looks: Looks,
        *,
        period_s: float,
        cooldown_s: float,
        gpus: Collection[str] = (),
        own_gpus: Callable[[], Collection[str]] = tuple,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(period_s)
        self._limits = limits
        self._looks = looks
        self._cooldown_s = cooldown_s
        self._gpus = gpus
        self._own_gpus = own_gpus
        self._changed = changed
        self._clock = clock
        self._past_at = 0.0
        self._seen: Observation | None = None
        self._lock = Lock()
        self.reason = ""

    def start(self) -> None:
        """Look, so that there is an answer, and go on looking."""
        if self._limits.cpu_percent is not None:
            self._looks.look()
            self._ending.wait(min(self.period_s, SHORTEST_LOOK_S))
        self.step()
        super().start()

    @property
    def open(self) -> bool:
        """Whether a new job may be taken; a disk can fill between two looks, so it is asked now."""
        if self.reason:
            return False
        room = self._looks.disk_free_mb() >= self._limits.disk_floor_mb
        if not room:
            self.wake()
        return room

    def step(self) -> None:
        """Look once, and judge."""
        seen = self._looks.look(self._gpus)
        with self._lock:
            self._seen = seen
            before, self.reason = self.reason, self._judged(seen)
        if bool(before) != bool(self.reason):
            if self.reason:
                log.warning("constrained: no new jobs are taken", reason=self.reason)
            else:
                log.info("within its limits again: new jobs are taken")
            self._changed()

    def condition(self) -> dict[str, object]:
        """Return how the machine is, and why it is constrained if it is, as JSON takes it."""
        with self._lock:
            seen = {} if self._seen is None else self._seen.reported()
            return {**seen, "constrained": self.reason}

    def _judged(self, seen: Observation) -> str:
        now = self._clock()
        if passed := "; ".join(self._limits.passed(seen, self._own_gpus())):
            self._past_at = now
            return passed
        if self.reason and now - self._past_at < self._cooldown_s:
            return f"within its limits again, which must last for {self._cooldown_s:g} s"
        return ""

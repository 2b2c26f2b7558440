"""The departure: gives every job back before its window ends, whatever hangs meanwhile."""

from collections.abc import Callable, Collection

import structlog
from forge_schema.lease import End
from forge_schema.states import Reason

from forge_worker.attempt import Attempt
from forge_worker.clock import seconds
from forge_worker.gateway import Gateway
from forge_worker.loop import Loop
from forge_worker.spot.window import Window, earlier

PERIOD_S = 0.25

log = structlog.get_logger(__name__)


class Departure(Loop):
    """`window` is the worker's own, None while it stays; each attempt has its own besides."""

    name = "departure"

    def __init__(
        self,
        attempts: Callable[[], Collection[Attempt]],
        gateway: Gateway,
        *,
        leave: Callable[[], None],
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempts = attempts
        self._gateway = gateway
        self._leave = leave
        self._clock = clock
        self.window: Window | None = None

    def announce(self, window: Window) -> None:
        """Take a window; of two, the one that ends first."""
        self.window = earlier(self.window, window)

    def left_s(self, most_s: float | None = None) -> float | None:
        """Return the seconds until the worker must leave, `most_s` at most; None: it stays."""
        if self.window is None:
            return most_s
        left = max(0.0, self.window.leave_s - self._clock())
        return left if most_s is None else min(left, most_s)

    def step(self) -> None:
        """Give back what is late, and leave when that is due."""
        if self.window is not None and self._clock() >= self.window.leave_s:
            self._leave()
        late = [attempt for attempt in self._attempts() if self._is_late(attempt)]
        if not late:
            return
        # Its lease goes first: whoever is next may start while this one's container is removed.
        self._gateway.finish([_end(attempt) for attempt in late])
        for attempt in late:
            log.warning("given back before its end", job=attempt.fence.job_id)
            attempt.lose()

    def _is_late(self, attempt: Attempt) -> bool:
        window = attempt.window
        if window is None or attempt.settled or attempt.lost:
            return False
        return self._clock() >= window.give_back_s


def _end(attempt: Attempt) -> End:
    said = attempt.stop.detail if attempt.stop else ""
    why = f"{said}; time was up before all was stored"
    return End(attempt.fence, Reason.PREEMPTED, detail=why, usage=attempt.used())

"""Shutdown at a deadline: gives every job back before its window ends, whatever else hangs."""

from collections.abc import Callable, Collection
from threading import Thread

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Usage
from forge_schema.model.states import Reason

from forge_worker.agent.outbox import Outbox
from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.attempt.window import Window, earlier
from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 0.25
# If the queue takes longer to answer, other jobs are given back meanwhile.
TELL_S = 1.0

log = structlog.get_logger(__name__)


class Shutdown(Loop):
    """`window` is the worker's own and `why` its reason to leave; None and "" while it stays.

    Each attempt also has its own window.
    """

    name = "shutdown"

    def __init__(
        self,
        attempts: Callable[[], Collection[Attempt]],
        gateway: Gateway,
        outbox: Outbox,
        *,
        leave: Callable[[], None],
        used: Callable[[Attempt], Usage] = lambda _: Usage(),
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempts = attempts
        self._gateway = gateway
        self._outbox = outbox
        self._leave = leave
        self._used = used
        self._clock = clock
        self.window: Window | None = None
        self.why = ""
        self._telling: list[Thread] = []

    def announce(self, window: Window, why: str = "") -> None:
        """Set the window and its reason; of two windows, the one that ends first counts."""
        if earlier(self.window, window) is window:
            self.window, self.why = window, why

    def left_s(self, most_s: float | None = None) -> float | None:
        """Return the seconds until the worker must leave, at most `most_s`; None while it stays."""
        if self.window is None:
            return most_s
        left = max(0.0, self.window.leave_s - self._clock())
        return left if most_s is None else min(left, most_s)

    def step(self) -> None:
        """Give back jobs whose window is ending, and leave when the worker's own window ends."""
        if self.window is not None and self._clock() >= self.window.leave_s:
            self._leave()
        late = [attempt for attempt in self._attempts() if self._is_late(attempt)]
        # An attempt whose end is being delivered right now is left to that delivery.
        late = [attempt for attempt in late if attempt.decide_end()]
        if not late:
            return
        ends = [self._end(attempt) for attempt in late]
        # Store them on disk first: this process may be gone before a slow queue answers.
        kept = [end for end in ends if self._outbox.keep(end)]
        for attempt in late:
            log.warning("job_given_back", job=attempt.fence.job_id)
            attempt.lose("it was given back, because the worker's time was up")
        self._tell_aside(ends, kept)

    def end(self, patience_s: float | None = None) -> None:
        """End the loop, and wait at most `patience_s` seconds for reports under way."""
        super().end(patience_s)
        for thread in self._telling:
            thread.join(self.left_s(patience_s))

    def _tell_aside(self, ends: list[End], kept: list[End]) -> None:
        """Report in a separate thread: the queue may need longer to answer than there is time."""
        told = Thread(target=self._tell, args=(ends, kept), name="given back", daemon=True)
        told.start()
        self._telling = [*filter(Thread.is_alive, self._telling), told]
        told.join(self.left_s(TELL_S))

    def _tell(self, ends: list[End], kept: list[End]) -> None:
        """Report now; if the queue does not answer, the ends in the spool wait for it."""
        try:
            self._gateway.finish(ends)
        except Exception as error:
            log.warning(
                "end_not_told",
                jobs=len(ends),
                in_the_spool=len(kept),
                error=str(error),
                exc_info=not isinstance(error, ForgeError),
            )
            return
        for end in kept:
            self._outbox.spool.drop(end)

    def _is_late(self, attempt: Attempt) -> bool:
        window = attempt.window
        if window is None or attempt.end_decided or attempt.lost:
            return False
        return self._clock() >= window.give_back_s

    def _end(self, attempt: Attempt) -> End:
        # A job that was already stopping for another reason ends for that reason.
        stop = attempt.stop or Stop(Reason.PREEMPTED)
        why = "; ".join(filter(None, (stop.detail, "time was up before all was stored")))
        return End(attempt.fence, stop.reason, detail=why, usage=self._used(attempt))

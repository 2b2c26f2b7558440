"""Shutdown at a deadline: gives every job back before its window ends, whatever hangs meanwhile."""

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
# What the queue has not answered by then is answered while others are given back.
TELL_S = 1.0

log = structlog.get_logger(__name__)


class Shutdown(Loop):
    """`window` is the worker's own, and `why` it leaves; None and empty while it stays.

    Each attempt has a window of its own besides.
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
        """Take a window, and who says so; of two, the one that ends first."""
        if earlier(self.window, window) is window:
            self.window, self.why = window, why

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
        # One whose end is on its way to the queue this moment is left to that.
        late = [attempt for attempt in late if attempt.settle()]
        if not late:
            return
        ends = [self._end(attempt) for attempt in late]
        # On the disk first: a queue that is away may not answer before this process is gone.
        kept = [end for end in ends if self._outbox.keep(end)]
        for attempt in late:
            log.warning("job_given_back", job=attempt.fence.job_id)
            attempt.lose()
        self._tell_aside(ends, kept)

    def end(self, patience_s: float | None = None) -> None:
        """End, and wait for what the queue is being told, so long at most."""
        super().end(patience_s)
        for thread in self._telling:
            thread.join(self.left_s(patience_s))

    def _tell_aside(self, ends: list[End], kept: list[End]) -> None:
        """Tell the queue in a thread of its own: its answer may take longer than there is time."""
        told = Thread(target=self._tell, args=(ends, kept), name="given back", daemon=True)
        told.start()
        self._telling = [*filter(Thread.is_alive, self._telling), told]
        told.join(self.left_s(TELL_S))

    def _tell(self, ends: list[End], kept: list[End]) -> None:
        """Tell the queue now; what is kept waits in the spool where it does not answer."""
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
        if window is None or attempt.settled or attempt.lost:
            return False
        return self._clock() >= window.give_back_s

    def _end(self, attempt: Attempt) -> End:
        # One that had to stop for another reason before the notice came ends for that.
        stop = attempt.stop or Stop(Reason.PREEMPTED)
        why = "; ".join(filter(None, (stop.detail, "time was up before all was stored")))
        return End(attempt.fence, stop.reason, detail=why, usage=self._used(attempt))

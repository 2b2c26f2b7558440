"""The last lines of metrics: stored in a bounded time, since they must not hold the result back."""

from collections.abc import Callable
from threading import Event
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted, duration_text
from forge_schema.model.states import Phase

from forge_worker.attempt.attempt import LiveAttempt, Stop
from forge_worker.clock import seconds
from forge_worker.job_io.metrics.tail import MetricsTail
from forge_worker.queue.gateway import Gateway

# How long lines are stored after a job has ended by itself; and after it was stopped.
ENDED_S, STOPPED_S = 300.0, 30.0
# How long a queue that answers may take none of them.
FAILING_S = 60.0
# How long one try lasts, and the pause after one that failed.
TRY_S, PAUSE_S = 2.0, 1.0

log = structlog.get_logger(__name__)


class Settling:
    """Stores the lines of an ended job that are left, and tells in its log how many are lost.

    The time in which the queue does not answer at all does not count: then no end is reported
    either.
    """

    def __init__(
        self,
        attempt: LiveAttempt,
        gateway: Gateway,
        tail: MetricsTail,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._tail = tail
        self._clock = clock
        self._error = ""

    def settle(self) -> None:
        """Store what is left, as long as that is reasonable."""
        try:
            if why := self._stored():
                self._tell(why)
        finally:
            self._tail.close()

    def give_up(self, why: str) -> None:
        """Try once, and tell how many lines are lost because of something else."""
        try:
            if not self._tail.finish():
                self._tell(why)
        except ForgeError as error:
            self._tell(error.message)
        finally:
            self._tail.close()

    def _stored(self) -> str:
        """Store lines; return why some are left, or ""."""
        asked_before, spent_s, failing_s = self._attempt.stop, 0.0, 0.0
        while not self._attempt.lost:
            began, failed = self._clock(), False
            try:
                if self._tail.finish(TRY_S):
                    return ""
            except ForgeError as error:
                failed, self._error = True, error.message
            if failed and not self._answers():
                spent_s = failing_s = 0.0
            else:
                took_s = self._clock() - began
                spent_s, failing_s = spent_s + took_s, (failing_s + took_s) * failed
            if why := self._why(asked_before, spent_s, failing_s):
                return why
        return ""

    def _answers(self) -> bool:
        """Tell, after a pause, whether the queue answers something else."""
        Event().wait(PAUSE_S)
        try:
            self._attempt.heed(self._gateway.report(self._attempt.fence, Phase.FINISHING))
        except ForgeError:
            return False
        return True

    def _why(self, asked_before: Stop | None, spent_s: float, failing_s: float) -> str:
        """Return why no more lines are stored, or ""."""
        stop, window = self._attempt.stop, self._attempt.window
        if stop is not asked_before and stop is not None:
            # Nothing can be stored, or told, of a lost lease.
            return "" if stop.lost else stop.detail or stop.reason.value
        if window is not None and seconds() >= window.give_back_s:
            return "the worker is leaving"
        if failing_s >= FAILING_S:
            return f"the queue took none of them for {duration_text(failing_s)}: {self._error}"
        limit_s = ENDED_S if stop is None else STOPPED_S
        if spent_s >= limit_s:
            return f"storing them took longer than {duration_text(limit_s)}"
        return ""

    def _tell(self, why: str) -> None:
        left, stored = self._tail.left(), self._tail.stored
        if not left:
            return
        log.warning(
            "metrics_lost", job=self._attempt.fence.job_id, lines=left, stored=stored, why=why
        )
        lost = counted(left, "line")
        were = "were" if left > 1 else "was"
        self._attempt.note(f"{lost} of metrics {were} not stored, after {stored} that were: {why}")

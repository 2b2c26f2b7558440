"""The outbox: takes the end of a job, stores it on disk, and reports it to the queue.

    Jobs._run_job ─► Outbox.deliver ─► Claims.exchange                reported, next job granted
                         └───────────► Spool ─► Outbox.step ─► gateway.finish     reported later

An end is reported together with a claim for the next job, in one round trip. The grants return to
the thread of the job that ended, which starts them. A separate delivery thread would cost each
short job a thread switch, and a leaving worker could not deliver once its claim loop has ended.
"""

from collections.abc import Callable
from functools import partial
from threading import Event

import structlog
from forge_schema.database.pool import DatabaseUnreachable, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence

from forge_worker.agent.claim_loop import Claims, EndNotTaken, Granted
from forge_worker.agent.spool import Spool
from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.attempt.patience import Patience
from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerFailed, ServerRefused

# The loop is also woken after each successful renewal.
PERIOD_S = 5.0
# How long to renew the lease of an end that the queue fails to process.
HELD_S = 3600.0
# How long a draining worker waits for a queue that does not answer.
LAST_S = 3600.0
LOOK_S = 0.5

log = structlog.get_logger(__name__)


class Outbox(Loop):
    """Delivers ends; those that cannot be reported now wait in the spool.

    Args:
        gateway: reports ends to the queue.
        spool: keeps ends on disk.
        claims: reports ends and claims in the same round trip; None if it only empties the spool.
        patience_s: how long to retry an end after failures other than the queue's own, if the
            spool is full.
        clock: returns seconds.
    """

    name = "deliver"

    def __init__(
        self,
        gateway: Gateway,
        spool: Spool,
        claims: Claims | None = None,
        *,
        patience_s: float = 0.0,
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._gateway = gateway
        self._claims = claims
        self._patience_s = patience_s
        self._clock = clock
        # When the queue, although it answers, first failed to process an end.
        self._failing: dict[Fence, float] = {}
        self.spool = spool

    def deliver(self, attempt: LiveAttempt, end: End, *, frees: bool = True) -> list[Granted]:
        """Report an end, or store it in the spool. Idempotent.

        `frees` tells whether the job's resources are free.

        Returns:
            The jobs granted in the same round trip, for the caller to start.
        """
        assert self._claims is not None  # noqa: S101 - only a worker that claims has ends
        granted: list[Granted] = []
        try:
            ended, granted = self._claims.exchange(end, frees=frees)
        except ServerRefused as error:
            _log_refusal(end, error)
        except Exception as error:
            if not isinstance(error, DatabaseUnreachable):
                log.exception("end_not_taken", job=end.fence.job_id)
            if self.keep(end):
                log.warning("end_spooled", job=end.fence.job_id, error=str(error))
                if isinstance(error, EndNotTaken):
                    self.wake()
            else:
                self._insist(attempt, end)
        else:
            _log_answer(end, ended)
        return granted

    def _insist(self, attempt: LiveAttempt, end: End) -> None:
        """Retry until the queue answers. The attempt holds its resources meanwhile."""
        try:
            ended = Patience(attempt, self._patience_s)(partial(self._finish, end))
        except ForgeError as error:
            _log_refusal(end, error)
        else:
            _log_answer(end, ended)

    def _finish(self, end: End) -> Ended:
        """Report to the queue; an end is forgotten only if the queue rejects it."""
        try:
            return self._gateway.finish([end])[0]
        except (DatabaseUnreachable, ServerRefused):
            raise
        except Exception as error:
            log.exception("end_not_taken", job=end.fence.job_id)
            raise EndNotTaken(str(error) or type(error).__name__) from error

    def keep(self, end: End) -> bool:
        """Store an end on disk until it is reported; return False if there is no room."""
        try:
            return self.spool.put(end)
        except OSError as error:
            log.warning("spool_not_written", error=str(error))
            return False

    def waiting(self) -> int:
        """Return how many ends wait for the queue to answer."""
        return len(self.spool.ends())

    def heard(self) -> None:
        """Note that the queue answers."""
        if self.waiting():
            self.wake()

    def empty(self, left_s: Callable[[float], float | None]) -> None:
        """Wait until all ends are reported or time is up; the next start reports the rest.

        `left_s` returns the seconds left, at most its argument.
        """
        until_s = self._clock() + LAST_S
        while self.held() and left_s(max(0.0, until_s - self._clock())) != 0:
            Event().wait(LOOK_S)

    def held(self) -> list[Fence]:
        """Return the leases to renew until their ends are reported.

        If the queue fails to process an end for an hour, its lease may expire so that the job can
        continue. The end itself is retried without limit.
        """
        now = self._clock()
        return [
            fence for fence in self.spool.fences() if now - self._failing.get(fence, now) < HELD_S
        ]

    def step(self) -> None:
        """Report the waiting ends one by one.

        Raises:
            DatabaseUnreachable: the queue does not answer; the remaining ends wait.
        """
        for end in self.spool.ends():
            if self._answered(end):
                self.spool.drop(end)
                self._failing.pop(end.fence, None)

    def _answered(self, end: End) -> bool:
        """Report one end; return whether the queue took or refused it."""
        try:
            _log_answer(end, self._gateway.finish([end])[0])
        except ServerRefused as error:
            _log_refusal(end, error)
        except (ServerFailed, NotMigrated) as error:
            return self._failed(end, error)
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, and the end is kept
            return self._failed(end, error)
        return True

    def _failed(self, end: End, error: Exception) -> bool:
        """Record that the queue fails to process this end, which must not block the others."""
        first = end.fence not in self._failing
        began = self._failing.setdefault(end.fence, self._clock())
        log.error(
            "end_not_delivered",
            job=end.fence.job_id,
            error=str(error),
            held=self._clock() - began < HELD_S,
            exc_info=error if first and not isinstance(error, ForgeError) else None,
        )
        return False


def _log_refusal(end: End, error: ForgeError) -> None:
    log.error("end_rejected", job=end.fence.job_id, error=error.message)


def _log_answer(end: End, ended: Ended) -> None:
    """Log the queue's answer to an end."""
    about = {"job": end.fence.job_id, "reason": end.reason.value, "accepted": ended.accepted}
    state = ended.state.value if ended.state else None
    if ended.accepted:
        log.info("job_ended", **about, state=state)
    else:
        log.warning(
            "end_too_late", note="the lease belonged to another attempt", **about, state=state
        )

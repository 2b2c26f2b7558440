"""The outbox: takes the end of a job, keeps it on disk until the queue has answered, and tells it.

    Jobs._run_job ─► Outbox.deliver ─► gateway.finish                 told, or
                         │          └► Claims.exchange                told, and the next job granted
                         └───────────► Spool ─► Outbox.step ─► gateway.finish         told later

A success is told with a claim for the next job, in the same round trip; what is granted goes back
to the thread of the job that ended, which starts it. A thread of its own would cost each short job
a switch of threads, and a worker that leaves could not deliver once its claim loop has ended.
"""

from collections.abc import Callable
from functools import partial
from threading import Event

import structlog
from forge_schema.database.pool import DatabaseUnreachable, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence
from forge_schema.model.states import Budget

from forge_worker.agent.claim_loop import Claims, Granted
from forge_worker.agent.spool import Spool
from forge_worker.attempt.attempt import Attempt
from forge_worker.attempt.patience import Patience
from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerFailed, ServerRefused

# Besides, it is woken whenever a renewal was answered.
PERIOD_S = 5.0
# For so long the lease of an end is renewed that the queue answers with a failure.
HELD_S = 3600.0
# A worker that drains waits so long for a queue that is away.
LAST_S = 3600.0
LOOK_S = 0.5

log = structlog.get_logger(__name__)


class EndNotTaken(DatabaseUnreachable):
    """The queue is there, and failed at this one end; it is told again."""

    code = "end_not_taken"


class Outbox(Loop):
    """Delivers ends; those that cannot be told now wait in the spool until the queue answers.

    Args:
        gateway: tells the queue.
        spool: keeps ends on disk.
        claims: takes successes, and claims along with them; None: nothing is claimed.
        patience_s: how long an end is told again for other failures than the queue's own, where
            the spool has no room for it.
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
        # Since when the queue, which is there, fails at an end.
        self._failing: dict[Fence, float] = {}
        self.spool = spool

    def deliver(self, attempt: Attempt, end: End) -> list[Granted]:
        """Report the end, or have it wait in the spool; repeated, it is answered the same.

        Returns:
            The jobs that were granted in its place, for the caller to start.
        """
        granted: list[Granted] = []
        try:
            # The round trip that claims too has no place for a detail.
            if self._claims and end.reason.budget is Budget.SUCCESS and end.detail is None:
                ended, granted = self._claims.exchange(end)
            else:
                ended = self._gateway.finish([end])[0]
        except ServerRefused as error:
            _rejected(end, error)
        except Exception as error:
            if not isinstance(error, DatabaseUnreachable):
                log.exception("end_not_taken", job=end.fence.job_id)
            if self.keep(end):
                log.warning("end_spooled", job=end.fence.job_id, error=str(error))
            else:
                self._insist(attempt, end)
        else:
            _report(end, ended)
        return granted

    def _insist(self, attempt: Attempt, end: End) -> None:
        """Tell it again and again: the attempt holds what it was lent until the queue answers."""
        try:
            ended = Patience(attempt, self._patience_s)(partial(self._finish, end))
        except ForgeError as error:
            _rejected(end, error)
        else:
            _report(end, ended)

    def _finish(self, end: End) -> Ended:
        """Tell the queue; only its refusal is a reason to forget the end."""
        try:
            return self._gateway.finish([end])[0]
        except (DatabaseUnreachable, ServerRefused):
            raise
        except Exception as error:
            log.exception("end_not_taken", job=end.fence.job_id)
            raise EndNotTaken(str(error) or type(error).__name__) from error

    def keep(self, end: End) -> bool:
        """Keep an end on the disk until it is told; False where there is no room for it."""
        try:
            return self.spool.put(end)
        except OSError as error:
            log.warning("spool_not_written", error=str(error))
            return False

    def waiting(self) -> int:
        """Return how many ends wait for a queue that does not answer."""
        return len(self.spool.ends())

    def heard(self) -> None:
        """Hear that the queue answers."""
        if self.waiting():
            self.wake()

    def empty(self, left_s: Callable[[float], float | None]) -> None:
        """Wait until the queue has been told all, or time is up; the next start tells the rest.

        `left_s` says how many seconds are left of some.
        """
        until_s = self._clock() + LAST_S
        while self.held() and left_s(max(0.0, until_s - self._clock())) != 0:
            Event().wait(LOOK_S)

    def held(self) -> list[Fence]:
        """Return the leases to be renewed until their ends are told.

        Where the queue fails at an end for an hour, its lease may run out: the job is to go on.
        The end itself is told for as long as it takes.
        """
        now = self._clock()
        return [one for one in self.spool.fences() if now - self._failing.get(one, now) < HELD_S]

    def step(self) -> None:
        """Tell what waits, one by one.

        Raises:
            DatabaseUnreachable: the queue does not answer; what is left goes on waiting.
        """
        for end in self.spool.ends():
            if self._settled(end):
                self.spool.drop(end)
                self._failing.pop(end.fence, None)

    def _settled(self, end: End) -> bool:
        """Tell one, and return whether there is nothing more to tell of it."""
        try:
            _report(end, self._gateway.finish([end])[0])
        except ServerRefused as error:
            _rejected(end, error)
        except (ServerFailed, NotMigrated) as error:
            return self._failed(end, error)
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged, and the end is kept
            return self._failed(end, error)
        return True

    def _failed(self, end: End, error: Exception) -> bool:
        """Note that the queue fails at this one, which must not hold up the others."""
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


def _rejected(end: End, error: ForgeError) -> None:
    log.error("end_rejected", job=end.fence.job_id, error=error.message)


def _report(end: End, ended: Ended) -> None:
    """Log what became of an end."""
    about = {"job": end.fence.job_id, "reason": end.reason.value, "accepted": ended.accepted}
    state = ended.state.value if ended.state else None
    if ended.accepted:
        log.info("job_ended", **about, state=state)
    else:
        log.warning(
            "end_too_late", note="the lease belonged to another attempt", **about, state=state
        )

"""The courier: tells the queue the ends that wait in the spool, and drops each that is answered."""

from collections.abc import Callable

import structlog
from forge_schema.database.pool import DatabaseUnreachable, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence

from forge_worker.agent.spool import Spool
from forge_worker.job_runs.clock import seconds
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerFailed, ServerRefused

# Besides, it is woken whenever a renewal was answered.
PERIOD_S = 5.0
# An end that the queue answers with a failure for so long is not held for it any more.
HELD_S = 3600.0

log = structlog.get_logger(__name__)


class Courier(Loop):
    """Whoever could not deliver an end hands it over; it is told as soon as the queue answers."""

    name = "deliver"

    def __init__(
        self, gateway: Gateway, spool: Spool, *, clock: Callable[[], float] = seconds
    ) -> None:
        super().__init__(PERIOD_S)
        self._gateway = gateway
        self._clock = clock
        # Since when the queue, which is there, fails at an end.
        self._failing: dict[Fence, float] = {}
        self.spool = spool

    def take(self, end: End) -> bool:
        """Keep an end on the disk until it is told; False where there is no room for it."""
        try:
            return self.spool.put(end)
        except OSError as error:
            log.warning("the spool cannot be written", error=str(error))
            return False

    def heard(self) -> None:
        """Hear that the queue answers."""
        if self.spool.ends():
            self.wake()

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
            if self._told(end):
                self.spool.drop(end)
                self._failing.pop(end.fence, None)

    def _told(self, end: End) -> bool:
        """Tell one, and return whether there is nothing more to tell of it."""
        try:
            said(end, self._gateway.finish([end])[0])
        except ServerRefused as error:
            log.error("refused", job=end.fence.job_id, error=error.message)  # noqa: TRY400  it says all
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
            "not delivered yet",
            job=end.fence.job_id,
            error=str(error),
            held=self._clock() - began < HELD_S,
            exc_info=error if first and not isinstance(error, ForgeError) else None,
        )
        return False


def said(end: End, ended: Ended) -> None:
    """Say in the worker's log what became of an end."""
    about = {"job": end.fence.job_id, "reason": end.reason.value, "accepted": ended.accepted}
    state = ended.state.value if ended.state else None
    if ended.accepted:
        log.info("ended", **about, state=state)
    else:
        log.warning("ended too late: the lease was another's", **about, state=state)

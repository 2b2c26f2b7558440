"""The courier: tells the queue the ends that wait in the spool, and drops each that is answered."""

import structlog
from forge_schema.database import DatabaseUnreachable
from forge_schema.errors import ForgeError
from forge_schema.lease import End, Ended

from forge_worker.gateway import Gateway
from forge_worker.http_session import ServerFailed
from forge_worker.loop import Loop
from forge_worker.spool import Spool

# Besides, it is woken whenever a renewal was answered.
PERIOD_S = 5.0

log = structlog.get_logger(__name__)


class Courier(Loop):
    """Whoever could not deliver an end hands it over; it is told as soon as the queue answers."""

    name = "deliver"

    def __init__(self, gateway: Gateway, spool: Spool) -> None:
        super().__init__(PERIOD_S)
        self._gateway = gateway
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

    def step(self) -> None:
        """Tell what waits, one by one.

        Raises:
            DatabaseUnreachable: the queue does not answer; what is left goes on waiting.
        """
        for end in self.spool.ends():
            if self._told(end):
                self.spool.drop(end)

    def _told(self, end: End) -> bool:
        """Tell one, and return whether there is nothing more to tell of it."""
        try:
            said(end, self._gateway.finish([end])[0])
        except ServerFailed as error:
            # At this one; it must not hold up the others.
            log.warning("not delivered yet", job=end.fence.job_id, error=error.message)
            return False
        except DatabaseUnreachable:
            raise
        except Exception as error:
            trace = not isinstance(error, ForgeError)
            log.error("refused", job=end.fence.job_id, error=str(error), exc_info=trace)  # noqa: TRY400  as wanted
        return True


def said(end: End, ended: Ended) -> None:
    """Say in the worker's log what became of an end."""
    about = {"job": end.fence.job_id, "reason": end.reason.value, "accepted": ended.accepted}
    state = ended.state.value if ended.state else None
    if ended.accepted:
        log.info("ended", **about, state=state)
    else:
        log.warning("ended too late: the lease was another's", **about, state=state)

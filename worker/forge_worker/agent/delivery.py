"""The delivery of an attempt's end: to the queue, or to the spool while that does not answer."""

from functools import partial

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended
from forge_schema.model.states import Budget

from forge_worker.agent.claim_loop import Claimer
from forge_worker.agent.courier import Courier, said
from forge_worker.job_runs.attempt import Attempt
from forge_worker.job_runs.patience import Patience
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.http.session import ServerRefused

log = structlog.get_logger(__name__)


class NotTaken(DatabaseUnreachable):
    """The queue is there, and failed at this one end; it is told again."""

    code = "end_not_taken"


class Delivery:
    """A success asks for the next job in the same round trip."""

    def __init__(
        self, gateway: Gateway, claimer: Claimer, courier: Courier, *, patience_s: float
    ) -> None:
        self._gateway = gateway
        self._claimer = claimer
        self._courier = courier
        self._patience_s = patience_s

    def deliver(self, attempt: Attempt, end: End) -> None:
        """Report the end, or have it wait in the spool; repeated, it is answered the same."""
        try:
            ended = self._told(attempt, end)
        except ForgeError as error:
            log.warning("refused", job=end.fence.job_id, error=error.message)
            return
        if ended is not None:
            said(end, ended)

    def _told(self, attempt: Attempt, end: End) -> Ended | None:
        """Return what became of it; None where it waits in the spool."""
        try:
            return self._send(end)
        except DatabaseUnreachable as error:
            if self._courier.take(end):
                log.warning("waits in the spool", job=end.fence.job_id, error=error.message)
                return None
        # The spool is full: the attempt holds what it was lent until the queue answers.
        return Patience(attempt, self._patience_s)(partial(self._send, end))

    def _send(self, end: End) -> Ended:
        """Tell the queue; whatever fails but for a refusal is no reason to forget the end."""
        try:
            return self._sent(end)
        except (DatabaseUnreachable, ServerRefused):
            raise
        except Exception as error:
            log.exception("the queue failed at an end", job=end.fence.job_id)
            raise NotTaken(str(error) or type(error).__name__) from error

    def _sent(self, end: End) -> Ended:
        # The round trip that claims too has no place for a detail.
        if end.reason.budget is Budget.SUCCESS and end.detail is None:
            return self._claimer.deliver(end)
        return self._gateway.finish([end])[0]

"""The delivery of an attempt's end to the queue, until that has answered."""

from functools import partial

import structlog
from forge_schema.errors import ForgeError
from forge_schema.lease import End, Ended
from forge_schema.states import Budget

from forge_worker.attempt import Attempt
from forge_worker.claimer import Claimer
from forge_worker.gateway import Gateway
from forge_worker.patience import Patience

log = structlog.get_logger(__name__)


class Delivery:
    """A success asks for the next job in the same round trip."""

    def __init__(self, gateway: Gateway, claimer: Claimer, *, patience_s: float) -> None:
        self._gateway = gateway
        self._claimer = claimer
        self._patience_s = patience_s

    def deliver(self, attempt: Attempt, end: End) -> None:
        """Report the end until the queue has answered; repeated, it answers the same."""
        try:
            ended = Patience(attempt, self._patience_s)(partial(self._send, end))
        except ForgeError as error:
            log.warning("not delivered", job=end.fence.job_id, error=error.message)
            return
        log.info(
            "ended",
            job=end.fence.job_id,
            reason=end.reason.value,
            accepted=ended.accepted,
            state=ended.state.value if ended.state else None,
        )

    def _send(self, end: End) -> Ended:
        if end.reason.budget is Budget.SUCCESS:
            return self._claimer.deliver(end)
        return self._gateway.finish([end])[0]

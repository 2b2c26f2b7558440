"""Thin out a job's older checkpoints in the background."""

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import JobSpec
from forge_schema.queue.thinning import MOST

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

THINNING_S = 60.0
KEEP: int = JobSpec.model_fields["keep_checkpoints"].default

log = structlog.get_logger(__name__)


class Thinner(Loop):
    """Thins out checkpoints once per request; a failed run is made up for by the next.

    It stops before the next object if the attempt must stop. A call that hangs is abandoned.
    """

    name = "thinning"

    def __init__(self, attempt: LiveAttempt, gateway: Gateway) -> None:
        super().__init__(THINNING_S)
        self._attempt = attempt
        self._gateway = gateway
        self._asked = False
        self._everywhere = True

    def ask(self) -> None:
        """Request a run now."""
        self._asked = True
        self.wake()

    def step(self) -> None:
        """Thin out if requested."""
        if not self._asked or not self._go_on():
            return
        self._asked = False
        # Once per attempt, whether it succeeds or not, and again only while there is much to
        # remove.
        everywhere, self._everywhere = self._everywhere, False
        fence, keep = self._attempt.fence, self._attempt.grant.spec.get("keep_checkpoints", KEEP)
        try:
            gone = self._gateway.thin_checkpoints(
                fence, keep, everywhere=everywhere, go_on=self._go_on
            )
        except ForgeError as error:
            log.warning("checkpoints_not_thinned", job=fence.job_id, error=error.message)
        else:
            self._everywhere = gone >= MOST

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  a store may take long
        """End without waiting for an answer."""
        super().end(0.0)

    def _go_on(self) -> bool:
        return not (self.ending or self._attempt.stopping.is_set())

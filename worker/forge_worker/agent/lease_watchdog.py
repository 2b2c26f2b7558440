"""The lease watchdog: tracks on this machine's own clock how long each lease is known to hold.

A lease counts from when its last granted renewal was sent, so it ends here before it ends in the
queue, whatever the machine's wall clock shows.
"""

from collections.abc import Callable, Collection

import structlog
from forge_schema.model.states import Phase, Reason

from forge_worker.agent.registration import WorkerIdentity
from forge_worker.attempt.attempt import LiveAttempt, Stop
from forge_worker.clock import seconds
from forge_worker.loop import Bell, Loop
from forge_worker.settings.sections import Policy

PERIOD_S = 1.0
# A longer gap between two looks means that the process or the whole machine was suspended.
SLEPT_S = 5.0
# Seconds between the end of a job's grace period and its lease, for the kill and the next look.
MARGIN_S = 3.0
RESERVE_SHARE = 1 / 3

log = structlog.get_logger(__name__)


class LeaseWatchdog(Loop):
    """Stops jobs whose leases could not be renewed, except those already being delivered.

    `continue`: a job runs for `continue_s` more seconds after its lease expires, since the fencing
    token protects its result. `strict`: it is gone before its lease expires. A member of a gang
    always is: when its lease expires, the run ends for all.
    """

    name = "lease_watchdog"

    def __init__(
        self,
        attempts: Callable[[], Collection[LiveAttempt]],
        *,
        policy: Policy,
        identity: WorkerIdentity,
        continue_s: float,
        slept: Bell,
        clock: Callable[[], float] = seconds,
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempts = attempts
        self._policy = policy
        self._identity = identity
        self._continue_s = continue_s
        self._slept = slept
        self._clock = clock
        self._looked_s = clock()

    def step(self) -> None:
        """Check each lease; after a suspension, have all renewed at once."""
        now = self._clock()
        if now - self._looked_s > SLEPT_S:
            self._slept.ring()
        self._looked_s = now
        for attempt in self._attempts():
            if attempt.phase is not Phase.FINISHING and not attempt.lost:
                self._look(attempt, attempt.renewed_s + self._identity.ttl_s - now)

    def _look(self, attempt: LiveAttempt, left_s: float) -> None:
        if self._policy == "continue" and attempt.grant.nodes == 1:
            if left_s < -self._continue_s:
                self._stop(attempt)
            return
        ttl_s = self._identity.ttl_s
        reserve_s = min(float(attempt.grant.spec["grace_s"]) + MARGIN_S, ttl_s * RESERVE_SHARE)
        if left_s < min(MARGIN_S, reserve_s / 2):
            log.warning("job_killed_lease_ends", job=attempt.fence.job_id)
            attempt.lose("it ends before it could be renewed")
        elif left_s < reserve_s:
            self._stop(attempt)

    def _stop(self, attempt: LiveAttempt) -> None:
        if attempt.stop is None:
            log.warning("job_stopped_lease_unrenewed", job=attempt.fence.job_id)
            attempt.request_stop(Stop(Reason.WORKER_LOST, "its lease could not be renewed"))

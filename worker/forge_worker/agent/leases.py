"""The worker's leases: all renewed in one statement, and timed on this machine's own clock.

A lease counts from when its last granted renewal was sent, so it ends here before it ends in the
queue, whatever the machine's wall clock shows.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Event, Thread

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Fence, Renewal
from forge_schema.model.states import Phase, Reason, Standing, WorkerStatus
from forge_schema.queue.queue import WorkerUnknown
from forge_schema.queue.registry import NameInUse

from forge_worker.agent.leaving import Leaving
from forge_worker.agent.outbox import Outbox
from forge_worker.agent.registration import Registration, WorkerIdentity
from forge_worker.attempt import LiveAttempt, LiveAttempts, Stop
from forge_worker.clock import seconds
from forge_worker.loop import Bell, Loop
from forge_worker.machine.watched import Condition
from forge_worker.queue.gateway import Gateway
from forge_worker.settings.sections import Policy

PERIOD_S = 1.0
# A longer gap between two looks means that the process or the whole machine was suspended.
SLEPT_S = 5.0
# Seconds between the end of a job's grace period and its lease, for the kill and the next look.
MARGIN_S = 3.0
RESERVE_SHARE = 1 / 3


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


log = structlog.get_logger(__name__)


class LeaseRenewal(Loop):
    """Renews even when no job runs, so that the queue knows that the worker is alive."""

    name = "renew"

    def __init__(
        self,
        gateway: Gateway,
        registration: Registration,
        *,
        running: LiveAttempts,
        outbox: Outbox,
        condition: Condition,
        leaving: Leaving,
        woken: Event | None = None,
    ) -> None:
        super().__init__(registration.identity.heartbeat_s, woken=woken)
        self._gateway = gateway
        self._registration = registration
        self._running = running
        self._outbox = outbox
        self._condition = condition
        self._leaving = leaving
        self.answered = False

    def start(self) -> None:
        self._keep_pace()
        super().start()

    def step(self) -> None:
        try:
            self._beat()
        except NameInUse:
            # From now on, the process that took over speaks for this worker.
            self._ending.set()
            self._leaving.give_way(self._registration.identity.name)

    def renew_now(self) -> None:
        """Renew once more after the loop's end; without an answer, the leases last as they are."""
        with suppress(ForgeError):
            self.step()

    def say_goodbye(self, patience_s: float) -> None:
        """Tell the queue that the worker leaves in good order; wait at most `patience_s` seconds.

        If the queue does not answer, the worker leaves anyway, and the queue notices its silence.
        """
        if self.answered:
            leaves = Thread(target=self._disconnect, name="disconnect", daemon=True)
            leaves.start()
            leaves.join(patience_s)

    def _disconnect(self) -> None:
        # The worker leaves, whatever fails here.
        with suppress(Exception):
            self._gateway.disconnect(self._leaving.idle)

    def _beat(self) -> None:
        self.answered = False
        held = {a.fence: a for a in self._running.attempts() if not a.lost}
        if self._condition.faults.outdated() or self._registration.outdated():
            self._register()
        sent_s = seconds()
        # Unreported ends need their leases: the queue accepts an end only while its lease holds.
        renewal = self._renew({*held, *self._outbox.held()}, busy=bool(held))
        self.answered = True
        for fence, standing in renewal.standings.items():
            if fence in held and standing is not Standing.LOST:
                held[fence].renewed_s = sent_s
            if fence in held:
                held[fence].heed(standing)
        self._condition.suspected = renewal.suspected
        self._leaving.obey(renewal.command)
        self._registration.left_out(renewal.gangs_after_s or 0.0)
        self._outbox.heard()

    def _register(self) -> None:
        self._registration.register()
        self._keep_pace()

    def _keep_pace(self) -> None:
        self.period_s = self._registration.identity.heartbeat_s

    def _renew(self, fences: Collection[Fence], *, busy: bool) -> Renewal:
        condition = {**self._condition.reported(), "heartbeat_s": self.period_s}
        status = WorkerStatus.BUSY if busy else WorkerStatus.IDLE
        if condition.get("constrained"):
            status = WorkerStatus.CONSTRAINED
        try:
            return self._gateway.renew(list(fences), status, condition)
        except WorkerUnknown:
            log.warning(
                "boot_unknown",
                note="the worker was removed, or another process has its name or token;"
                " registering again",
            )
            self._register()
            return self._gateway.renew(list(fences), status, condition)

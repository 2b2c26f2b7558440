"""Lease renewal: renews every lease of the worker in one statement, and heeds the answer."""

from collections.abc import Callable, Collection, Mapping

import structlog
from forge_schema.model.lease import Fence, Renewal
from forge_schema.model.states import Standing, WorkerStatus
from forge_schema.queue.queue import WorkerUnknown
from forge_schema.queue.registry import NameInUse

from forge_worker.attempt.attempt import Attempt
from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

log = structlog.get_logger(__name__)


class LeaseRenewal(Loop):
    """Beats also when nothing runs, so that the queue knows the worker is there."""

    name = "renew"

    def __init__(
        self,
        gateway: Gateway,
        attempts: Callable[[], Collection[Attempt]],
        *,
        register: Callable[[], None],
        replaced: Callable[[NameInUse], None],
        command: Callable[[str | None], None],
        heard: Callable[[], None],
        spooled: Callable[[], Collection[Fence]],
        condition: Callable[[], Mapping[str, object]] = dict,
        outdated: Callable[[], bool] = lambda: False,
        period_s: float,
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._attempts = attempts
        self._register = register
        self._replaced = replaced
        self._command = command
        self._heard = heard
        # The leases of ends that the queue has not been told: it takes them while they hold.
        self._spooled = spooled
        self._condition = condition
        self._outdated = outdated
        self.answered = False

    def step(self) -> None:
        try:
            self._beat()
        except NameInUse as error:
            # Whoever it is speaks for the worker from now on.
            self._ending.set()
            self._replaced(error)

    def _beat(self) -> None:
        self.answered = False
        held = {a.fence: a for a in self._attempts() if not a.lost}
        if self._outdated():
            self._register()
        sent_s = seconds()
        renewal = self._renew({*held, *self._spooled()}, busy=bool(held))
        self.answered = True
        for fence, standing in renewal.standings.items():
            if fence in held and standing is not Standing.LOST:
                held[fence].renewed_s = sent_s
            if fence in held:
                held[fence].heed(standing)
        self._command(renewal.command)
        self._heard()

    def _renew(self, fences: Collection[Fence], *, busy: bool) -> Renewal:
        condition = self._condition()
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

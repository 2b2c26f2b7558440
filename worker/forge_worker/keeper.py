"""The lease keeper: renews every lease of the worker in one statement, and heeds the answer."""

from collections.abc import Callable, Collection, Mapping

import structlog
from forge_schema.queue import WorkerUnknown
from forge_schema.states import WorkerStatus

from forge_worker.attempt import Attempt
from forge_worker.gateway import Gateway
from forge_worker.loop import Loop

log = structlog.get_logger(__name__)


class Keeper(Loop):
    """Beats also when nothing runs, so that the queue knows the worker is there."""

    name = "renew"

    def __init__(
        self,
        gateway: Gateway,
        attempts: Callable[[], Collection[Attempt]],
        *,
        register: Callable[[], None],
        command: Callable[[str | None], None],
        condition: Callable[[], Mapping[str, object]] = dict,
        outdated: Callable[[], bool] = lambda: False,
        period_s: float,
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._attempts = attempts
        self._register = register
        self._command = command
        self._condition = condition
        self._outdated = outdated
        self.answered = False

    def step(self) -> None:
        self.answered = False
        held = {a.fence: a for a in self._attempts() if not a.lost}
        if self._outdated():
            self._register()
        condition = self._condition()
        status = WorkerStatus.BUSY if held else WorkerStatus.IDLE
        if condition.get("constrained"):
            status = WorkerStatus.CONSTRAINED
        try:
            renewal = self._gateway.renew(list(held), status, condition)
        except WorkerUnknown:
            log.warning(
                "the queue does not know this boot of the worker: it was removed, or another"
                " process goes by its name or token; registering again"
            )
            self._register()
            renewal = self._gateway.renew(list(held), status, condition)
        self.answered = True
        for fence, standing in renewal.standings.items():
            held[fence].heed(standing)
        self._command(renewal.command)

"""The worker's health: whether it can start jobs, and when it retries after failures."""

from collections.abc import Callable
from threading import Lock
from time import monotonic

import structlog
from forge_schema.model.quantities import counted, duration_text

from forge_worker.loop import Loop
from forge_worker.runners.docker.engine import engine_answers
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.engines import knock

PERIOD_S = 10.0
# This many failed starts in a row are the machine's fault, not the jobs'.
ROW = 3
# After each failure the worker pauses, longer each time, so that others can take the job.
REST_S = 10.0
LONGEST_REST_S = 300.0
AWAY = "the container engine does not answer"

log = structlog.get_logger(__name__)


class EngineHealth(Loop):
    """Check that the container engine answers, and count failed starts in a row.

    `reason` is why the worker takes no jobs, or "". After too many failed starts, one job at a time
        is tried after each pause, until one starts.
    """

    name = "health"

    def __init__(
        self,
        docker: DockerRunner | None,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(PERIOD_S)
        self._docker = docker
        self._changed = changed
        self._clock = clock
        self._lock = Lock()
        self._engine = ""
        self._row = 0
        self._why = ""
        self._rest_s = 0.0
        self._rests_until = clock()

    @property
    def reason(self) -> str:
        with self._lock:
            if self._engine or self._row < ROW:
                return self._engine
            return (
                f"{counted(self._row, 'job')} in a row could not be started here, so one is tried"
                f" every {duration_text(self._rest_s)}; the last: {self._why}"
            )

    def start(self) -> None:
        """Check once before the first claim, and then periodically."""
        self.step()
        super().start()

    def room(self, preparing: int) -> int | None:
        """Return how many jobs may be claimed while `preparing` have not started; None: any."""
        if self._docker is not None and (self._engine or _away()):
            self.wake()
            return 0
        with self._lock:
            if self._clock() < self._rests_until:
                return 0
            return None if self._row < ROW else max(0, 1 - preparing)

    def started(self) -> None:
        """Record that a job was started."""
        with self._lock:
            before, self._row = self._row, 0
            self._rests_until = self._clock()
        if before >= ROW:
            log.info("worker_healthy")
            self._changed()

    def failed(self, why: str) -> None:
        """Record that the machine could not start a job."""
        with self._lock:
            self._row += 1
            self._why = why
            self._rest_s = min(REST_S * 2 ** min(self._row - 1, 10), LONGEST_REST_S)
            self._rests_until = self._clock() + self._rest_s
        self.step()
        if self._row >= ROW:
            log.warning("worker_unhealthy", reason=self.reason)
            self._changed()

    def step(self) -> None:
        """Check the engine, and renew the network isolation of its containers."""
        if self._docker is None:
            return
        before = self._engine
        self._engine = self._docker.obstacle() if engine_answers() else AWAY
        if before != self._engine:
            if self._engine:
                log.warning("worker_constrained", reason=self._engine)
            else:
                log.info("engine_back")
            self._changed()


def _away() -> bool:
    try:
        knock()
    except OSError:
        return True
    return False

"""The reaper: removes containers that no job here uses any more, and frees their resources.

A job's GPUs, CPUs and memory are free when it has ended, its disk when its folders are removed.
"""

from threading import Event, Lock

import structlog

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.job_runs.job_environment import container_name
from forge_worker.loop import Loop
from forge_worker.machine.slots import Slots
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.runner import EngineUnreachable

PERIOD_S = 30.0
# The period while a job's slot waits for its container to be removed.
SOON_S = 2.0

log = structlog.get_logger(__name__)


class Reaper(Loop):
    """Keeps the slot and the folders of an ended job until its container is gone.

    `freed` is set when a job that is still to be stored leaves room for others.
    """

    name = "reap"
    shares = True

    def __init__(
        self,
        docker: DockerRunner | None,
        slots: Slots,
        *,
        freed: Event | None = None,
        woken: Event | None = None,
    ) -> None:
        super().__init__(PERIOD_S, woken=woken)
        self._docker = docker
        self._slots = slots
        self._freed = freed or Event()
        self._kept: dict[int, LiveAttempt] = {}
        self._lock = Lock()

    def ended(self, attempt: LiveAttempt) -> None:
        """Free all but the disk of a job that has ended, unless its container may still run."""
        if self.may_live(attempt):
            return
        self._slots.keep_disk(attempt.fence.token)
        # Otherwise its end, which claims too, follows at once.
        if attempt.folders.has_output():
            self._freed.set()

    def let_go(self, attempt: LiveAttempt) -> None:
        """Free the slot and the folders of an ended job, now or once its container is gone."""
        attempt.clear_away()
        if not self.may_live(attempt):
            self._free(attempt)
            return
        log.warning("slot_kept", note="its container may still run", job=attempt.fence.job_id)
        with self._lock:
            self._kept[attempt.fence.token] = attempt
            self.period_s = SOON_S
        self.wake()

    @property
    def keeps(self) -> bool:
        """Whether any slot may still be in use by an ended job."""
        return bool(self._kept)

    def step(self) -> None:
        """Remove unused containers, and free the slots and folders that waited for them."""
        try:
            if self._docker is not None:
                self._docker.reap_strays()
        except EngineUnreachable as error:
            log.debug("container_not_reaped", error=error.message)
        for attempt in list(self._kept.values()):
            if not self.may_live(attempt):
                self._free(attempt)
        with self._lock:
            self.period_s = SOON_S if self._kept else PERIOD_S

    def may_live(self, attempt: LiveAttempt) -> bool:
        """Tell whether a job's container may still run."""
        return self._docker is not None and self._docker.containers.may_live(
            container_name(attempt)
        )

    def _free(self, attempt: LiveAttempt) -> None:
        # Folders first: their disk space must be free before the slot is used again.
        attempt.folders.remove()
        self._slots.take_back(attempt.fence.token)
        with self._lock:
            self._kept.pop(attempt.fence.token, None)

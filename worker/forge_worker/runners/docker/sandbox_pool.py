"""The pool of sandboxes: keeps some ready while nothing else is to be done."""

from collections.abc import Callable

import structlog

from forge_worker.loop import Loop
from forge_worker.runners.docker.pause import pause_image
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.runner import EngineUnreachable

PERIOD_S = 30.0

log = structlog.get_logger(__name__)


class SandboxPool(Loop):
    """Makes sandboxes, one at a time, until as many wait as are `wanted`; removes unused ones.

    `folder` is the id of the worker's folder. Those that an earlier agent left are removed too,
    except for those of jobs that continue. When the loop ends, none is left without a job.
    """

    name = "sandboxes"

    def __init__(self, docker: DockerRunner, folder: str, wanted: Callable[[], int]) -> None:
        super().__init__(PERIOD_S, woken=docker.sandboxes.changed)
        self._docker = docker
        self._sandboxes = docker.sandboxes
        self._folder = folder
        self._wanted = wanted

    def step(self) -> None:
        """Remove and make what is due, unless a job starts now: it comes first."""
        if self._sandboxes.disturbs:
            return
        try:
            self._sandboxes.tidy(self._folder)
        except EngineUnreachable as error:
            log.debug("sandboxes_not_tidied", error=error.message)
            return
        try:
            for _ in range(self._wanted()):
                if self._lacks_one() and not self._docker.obstacle():
                    self._sandboxes.make(self._folder)
        except EngineUnreachable as error:
            log.warning("sandbox_not_made", note="jobs start more slowly", error=error.message)

    def _run(self) -> None:
        super()._run()
        try:
            self._sandboxes.end(self._folder)
        except EngineUnreachable as error:
            log.warning("sandboxes_left", error=error.message)

    def _lacks_one(self) -> bool:
        if self.ending or self._sandboxes.disturbs or pause_image() is None:
            return False
        return self._sandboxes.ready < self._wanted()

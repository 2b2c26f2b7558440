"""The disk watch: a job that fills more than its share is stopped, and no other job suffers."""

from forge_schema.model.states import Reason

from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.loop import Loop

PERIOD_S = 2.0


class DiskWatch(Loop):
    """Weighs the attempt's folders, log included, and what is being installed for it."""

    name = "disk"

    def __init__(self, attempt: Attempt, limit_mb: int) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._limit_mb = limit_mb

    def step(self) -> None:
        used_mb = self._attempt.bytes_used() >> 20
        if used_mb > self._limit_mb:
            detail = f"{used_mb} MiB on disk, {self._limit_mb} MiB were asked for"
            self._attempt.request_stop(Stop(Reason.DISK_FULL, detail))

"""The disk watch: stop a job that exceeds its disk request, before other jobs suffer."""

from forge_schema.model.states import Reason

from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.loop import Loop

PERIOD_S = 2.0


class DiskWatch(Loop):
    """Measures the attempt's folders, including the log, and installations made for it."""

    name = "disk"

    def __init__(self, attempt: Attempt, limit_mb: int) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._limit_mb = limit_mb

    def step(self) -> None:
        used_mb = self._attempt.bytes_used() >> 20
        if used_mb > self._limit_mb:
            detail = f"{used_mb} MiB on disk, {self._limit_mb} MiB were requested"
            self._attempt.request_stop(Stop(Reason.DISK_FULL, detail))

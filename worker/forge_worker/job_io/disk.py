"""The disk watch: stop a job that exceeds its disk request, before other jobs suffer."""

from collections.abc import Callable
from time import thread_time

from forge_schema.model.states import Reason

from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.loop import Loop

PERIOD_S, LONGEST_S = 2.0, 60.0
# A look at 100,000 files takes a good part of a second: the next one waits this many times as long.
PAUSE = 20.0


class DiskWatch(Loop):
    """Measures the attempt's folders, including the log, and installations made for it.

    The more CPU time that takes, the longer it pauses.
    """

    name = "disk"

    def __init__(
        self, attempt: Attempt, limit_mb: int, clock: Callable[[], float] = thread_time
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._limit_mb = limit_mb
        self._clock = clock

    def step(self) -> None:
        began = self._clock()
        used_mb = self._attempt.bytes_used() >> 20
        self.period_s = min(LONGEST_S, max(PERIOD_S, PAUSE * (self._clock() - began)))
        if used_mb > self._limit_mb:
            detail = f"{used_mb} MiB on disk, {self._limit_mb} MiB were requested"
            self._attempt.request_stop(Stop(Reason.DISK_FULL, detail))

"""The disk watch: stop a job that exceeds its disk request, before other jobs suffer."""

import os
from collections.abc import Callable
from time import monotonic, thread_time

from forge_schema.model.quantities import MIB, size_text
from forge_schema.model.states import Reason

from forge_worker.attempt.attempt import LiveAttempt, Stop
from forge_worker.loop import Loop

PERIOD_S, LONGEST_S = 2.0, 60.0
# While the whole disk loses less than this share of what is left to the job, it is measured this
# often. Others may free as much as it writes, so the disk does not tell everything.
SHARE, QUIET_S = 0.25, 10.0
# A look at 100,000 files takes a good part of a second: the next one waits this many times as long.
PAUSE = 20.0


class DiskWatch(Loop):
    """Measures the attempt's folders, including the log, and installations made for it.

    The more CPU time that takes, the longer it pauses.
    """

    name = "disk"

    def __init__(
        self, attempt: LiveAttempt, limit_mb: int, clock: Callable[[], float] = thread_time
    ) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._limit_mb = limit_mb
        self._clock = clock
        self._root = str(attempt.folders.root)
        # The time of the last look, what the whole disk had free then, and what the job had left.
        self._looked_at = float("-inf")
        self._free_bytes = self._left_bytes = 0

    def idle(self) -> bool:
        if monotonic() - self._looked_at >= QUIET_S:
            return False
        return self._free_bytes - self._free() < SHARE * self._left_bytes

    def step(self) -> None:
        began, self._looked_at, self._free_bytes = self._clock(), monotonic(), self._free()
        used = self._attempt.bytes_used()
        used_mb, self._left_bytes = used >> 20, (self._limit_mb << 20) - used
        self.period_s = min(LONGEST_S, max(PERIOD_S, PAUSE * (self._clock() - began)))
        if used_mb > self._limit_mb:
            detail = (
                f"{size_text(used_mb * MIB)} on disk, {size_text(self._limit_mb * MIB)} requested"
            )
            self._attempt.request_stop(Stop(Reason.DISK_FULL, detail))

    def _free(self) -> int:
        disk = os.statvfs(self._root)
        return disk.f_bfree * disk.f_frsize

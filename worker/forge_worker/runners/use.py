"""Resource use of a job, as measured by its runner."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from forge_worker.runners.process.descendants import descendants, memory_bytes

MIB = 1 << 20
NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class JobUse:
    """CPU-seconds and peak memory since the job's start, and its memory now, in MiB.

    Memory is what the kernel cannot reclaim: the page cache is not counted.
    """

    cpu_seconds: float
    memory_mb: float
    peak_memory_mb: float


def use_below(shim: int) -> JobUse | None:
    """Return what the processes below a job's shim use, or None if the shim is gone.

    Processes that have ended are included in the counts of the process that reaped them.
    """
    try:
        parent = psutil.Process(shim)
        times = parent.cpu_times()
    except psutil.Error:
        return None
    below = descendants(shim)
    seconds = times.children_user + times.children_system + sum(map(_seconds, below))
    now_mb = memory_bytes(below, NO_LIMIT) / MIB
    return JobUse(seconds, now_mb, now_mb)


def _seconds(pid: int) -> float:
    try:
        return sum(psutil.Process(pid).cpu_times()[:4])
    except psutil.Error:
        return 0.0

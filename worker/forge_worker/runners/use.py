"""What a job has used of its machine, as its runner can tell."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from forge_worker.runners.process.descendants import descendants, memory_bytes

MIB = 1 << 20
NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class JobUse:
    """CPU-seconds and the most memory since the job started, and its memory now; in MiB.

    Memory is what the kernel cannot take back: the cache of files is not counted.
    """

    cpu_seconds: float
    memory_mb: float
    peak_memory_mb: float


def use_below(shim: int) -> JobUse | None:
    """Return what the processes below a job's shim use, or None when it is gone.

    Those that have ended are in the counts of whoever collected them, at last the shim.
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

"""Resource use of a job, as measured by its runner."""

from __future__ import annotations

from dataclasses import dataclass

from forge_worker.runners.process.descendants import cpu_seconds, descendants, memory_bytes

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
    if (times := cpu_seconds(shim)) is None:
        return None
    below = descendants(shim)
    # The shim itself is the worker's.
    seconds = times[1] + sum(sum(cpu_seconds(pid) or ()) for pid in below)
    now_mb = memory_bytes(below, NO_LIMIT) / MIB
    return JobUse(seconds, now_mb, now_mb)

"""Find, measure and end the processes below one process, from /proc. Standard library only.

Agent and shims do this all the time, hence without pathlib, which takes longer than the kernel.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The place of `utime` in /proc/<pid>/stat after the program's name; three more times follow.
TIMES = 11
RESIDENT = (b"RssAnon", b"RssShmem", b"VmSwap")
SHARES = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
KILL_PATIENCE_S = 20.0
RETRY_S = 0.005

MIB = 1 << 20
NO_LIMIT = 1 << 62


def descendants(root: int) -> list[int]:
    """Return the process ids below `root`, parents before their children."""
    pids: list[int] = []
    todo = [root]
    while todo:
        below = children(todo.pop())
        pids += below
        todo += below
    return pids


def memory_bytes(pids: list[int], limit: int) -> int:
    """Return the memory in bytes that `pids` hold and the kernel cannot reclaim.

    This is anonymous and shared memory and swap, without the page cache. Pages shared by forked
    processes count once; that is slow to determine, so it is done only above `limit`.
    """
    resident = sum(_total(pid, "status", RESIDENT) for pid in pids)
    if resident <= limit:
        return resident
    return sum(_total(pid, "smaps_rollup", SHARES) for pid in pids)


def cpu_seconds(pid: int) -> tuple[float, float] | None:
    """Return the CPU time of a process, and that of the children it reaped; None if it is gone."""
    try:
        stat = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    user, system, users, systems = map(int, stat.rpartition(b")")[2].split()[TIMES : TIMES + 4])
    return (user + system) / TICKS_PER_S, (users + systems) / TICKS_PER_S


def kill_children() -> int:
    """Kill and reap all descendants; return how many could not be killed.

    The caller must be a subreaper, so that orphans become its children however they detached.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    while _reap_all():
        left = descendants(os.getpid())
        if time.monotonic() > deadline:
            return len(left)
        for pid in left:
            _kill(pid)
        time.sleep(RETRY_S)
    return 0


def _reap_all() -> bool:
    """Reap dead children; return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def children(pid: int) -> list[int]:
    """Return the process ids of the children of `pid`, oldest first; none if it is gone."""
    pids: list[int] = []
    threads = f"/proc/{pid}/task"
    try:
        names = os.listdir(threads)  # noqa: PTH208  as the docstring above says
    except OSError:  # it ended meanwhile
        return pids
    for name in names:
        try:
            pids += map(int, _read(f"{threads}/{name}/children").split())
        except OSError:
            continue
    return pids


def _total(pid: int, table: str, fields: tuple[bytes, ...]) -> int:
    try:
        text = _read(f"/proc/{pid}/{table}")
    except OSError:
        return 0
    kib = (text.partition(b"\n%b:" % field)[2].split(None, 1) for field in fields)
    return sum(int(words[0]) for words in kib if words) * 1024


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  as above
        return file.read()


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

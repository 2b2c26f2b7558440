"""Find, measure and end the processes below one process, from /proc. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")
KILL_PATIENCE_S = 20.0
RETRY_S = 0.005


def descendants(root: int) -> list[int]:
    """Return the process ids below `root`, parents before their children."""
    found: list[int] = []
    todo = [root]
    while todo:
        below = _children(todo.pop())
        found += below
        todo += below
    return found


def memory_bytes(pids: list[int], limit: int) -> int:
    """Return the memory in bytes that `pids` hold and the kernel cannot reclaim.

    This is anonymous and shared memory and swap, without the page cache. Pages shared by forked
    processes count once; that is slow to determine, so it is done only above `limit`.
    """
    resident = sum(_total(pid, "status", {"RssAnon", "RssShmem", "VmSwap"}) for pid in pids)
    if resident <= limit:
        return resident
    shares = {"Pss_Anon", "Pss_Shmem", "SwapPss"}
    return sum(_total(pid, "smaps_rollup", shares) for pid in pids)


def kill_children() -> int:
    """Kill and reap all descendants; return how many could not be killed.

    The caller must be a subreaper, so that orphans become its children however they detached.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    while True:
        left = descendants(os.getpid())
        for pid in left:
            _kill(pid)
        if not _reap_all() or time.monotonic() > deadline:
            return len(descendants(os.getpid()))
        time.sleep(RETRY_S)


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


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = list((PROC / str(pid) / "task").iterdir())
    except OSError:  # it ended meanwhile
        return found
    for thread in threads:
        try:
            found += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return found


def _total(pid: int, table: str, fields: set[str]) -> int:
    try:
        lines = (PROC / str(pid) / table).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in fields) * 1024

"""What jobs that have a user of their own leave in the shared memory of a machine.

Files in /dev/shm and System V's segments, semaphores and queues stay when their makers are killed.
Nothing tells of which process they are, only of which user. So they are removed once no process of
that user is left, and only what is younger than the oldest of the jobs that ran since it was so.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import structlog

FOLDERS = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108  other users' files stay
SYSTEM_V = Path("/proc/sysvipc")
REMOVE = 0  # IPC_RMID

log = structlog.get_logger(__name__)


class SharedMemory:
    """The shared memory of the jobs' own user. Thread-safe."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._lock = threading.Lock()
        self._jobs = 0
        self._since = float("inf")

    def began(self, at: float | None = None) -> None:
        """Note that a job begins, or began at a time of the wall clock."""
        with self._lock:
            self._jobs += 1
            self._since = min(self._since, at or time.time())

    def ended(self) -> None:
        """Note that a job has ended; after the last one, remove what they left."""
        with self._lock:
            self._jobs -= 1
            if self._jobs == 0 and not _runs(self._uid):
                since, self._since = self._since, float("inf")
                removed = _remove_files(self._uid, since) + _remove_system_v(self._uid, since)
                if removed:
                    log.info("shared_memory_removed", user=self._uid, entries=removed)


def _runs(uid: int) -> bool:
    users = (process.info["uids"] for process in psutil.process_iter(["uids"]))
    return any(uid in uids for uids in users if uids)


def _remove_files(uid: int, since: float) -> int:
    """Remove the user's files and empty folders; return how many entries that were."""
    removed = 0
    for place in filter(Path.is_dir, FOLDERS):
        for _, folders, files, here in os.fwalk(place, topdown=False, follow_symlinks=False):
            for name in (*files, *folders):
                with suppress(OSError):
                    status = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if status.st_uid == uid and status.st_ctime >= since:
                        _remove(name, here)
                        removed += 1
    return removed


def _remove(name: str, here: int) -> None:
    try:
        os.unlink(name, dir_fd=here)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=here)


def _remove_system_v(uid: int, since: float) -> int:
    """Remove the user's segments, semaphores and queues; return how many that were."""
    libc = ctypes.CDLL(None)
    removed = 0
    # The call that removes one of a kind, and its arguments after the number.
    for kind, call, arguments in (
        ("shm", libc.shmctl, (REMOVE, None)),
        ("sem", libc.semctl, (0, REMOVE)),
        ("msg", libc.msgctl, (REMOVE, None)),
    ):
        for segment in _system_v(kind):
            if int(segment["cuid"]) == uid and int(segment["ctime"]) >= int(since):
                removed += call(int(segment[f"{kind}id"]), *arguments) == 0
    return removed


def _system_v(kind: str) -> list[dict[str, str]]:
    with suppress(OSError):
        names, *rows = (line.split() for line in (SYSTEM_V / kind).read_text().splitlines())
        return [dict(zip(names, row, strict=True)) for row in rows]
    return []

"""Tell whether a file rests, so that what is read of it is not half of something."""

import fcntl
import os
import time
from functools import lru_cache
from pathlib import Path
from signal import SIGURG
from typing import BinaryIO

from forge_worker.files.safe_files import Status, status_in

# Granularity of the kernel's file timestamps: two writes within it can have the same mtime.
TICK_NS = 20_000_000
# A file that is open for writing counts as whole after this time without a write …
OPEN_QUIET_NS = 30_000_000_000
# … and after this time if the file system cannot tell whether it is open.
QUIET_NS = 2_000_000_000
# A write through a mapped file never changes its mtime here.
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
MOUNTS = Path("/proc/self/mountinfo")


def open_for_writing(file: BinaryIO) -> bool | None:
    """Return whether any process can write to a file, opened or mapped; None if nobody can tell."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # A process that opens the file now waits until the lease is released below, and this
        # process gets a signal. SIGURG is ignored, but the default SIGIO would end the process.
        fcntl.fcntl(file, fcntl.F_SETSIG, SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def rests(file: BinaryIO, status: Status, *, written: bool | None) -> bool:
    """Tell whether nobody writes to a file with this status; `written` as `open_for_writing`."""
    if written is False:
        quiet_ns = 0
    elif in_memory(os.fstat(file.fileno()).st_dev):
        return False
    else:
        quiet_ns = OPEN_QUIET_NS if written else QUIET_NS
    return abs(time.time_ns() - status[1]) >= quiet_ns


def after_its_tick(file: BinaryIO) -> tuple[Status, bool]:
    """Return a file's status, and whether every later write is sure to change it."""
    status = status_in(file)
    if not outside_its_tick(status):
        time.sleep(TICK_NS / 1e9)
        status = status_in(file)
    return status, outside_its_tick(status)


def outside_its_tick(status: Status) -> bool:
    """Tell whether a write from now on changes the mtime of a file with this status."""
    return abs(time.time_ns() - status[1]) >= TICK_NS


@lru_cache(maxsize=16)
def in_memory(device: int) -> bool:
    """Tell whether a file system, by its device, is one of those without times of mapped writes."""
    try:
        mounts = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    return any(
        words[words.index("-") + 1] in IN_MEMORY
        for words in map(str.split, mounts)
        if words[2] == name
    )

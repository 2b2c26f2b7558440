"""Locks on files that the kernel releases when their process dies."""

import fcntl
from typing import IO


def try_lock(file: int | IO[bytes] | IO[str], *, shared: bool = False) -> bool:
    """Lock an open file unless another process holds it; tell whether it is locked."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

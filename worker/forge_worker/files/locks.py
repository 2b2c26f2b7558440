"""File locks, which the kernel releases when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def try_lock(file: int | IO[bytes] | IO[str], *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process holds the lock."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def held(file: int | IO[bytes]) -> Iterator[None]:
    """Hold the lock on an open file; where its file system has none, go on without."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)

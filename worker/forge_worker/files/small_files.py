"""Small files: replaced as a whole, and locked by a process until it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def write_atomically(path: Path, text: str, *, durable: bool, mode: int = 0o666) -> None:
    """Write a whole file or leave the old one; if `durable`, the write survives a power cut.

    Raises:
        OSError: the disk is full or faulty.
    """
    fresh = path.with_name(f"{path.name}.new")
    # A file left by a killed writer would keep its old mode.
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(place)
    finally:
        os.close(place)


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

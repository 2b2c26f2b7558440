"""One `forge up` for a folder: the lock that its process holds for as long as it lives."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_client.errors import ClientError

FILE = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock.

    Raises:
        ClientError: another process holds it.
    """
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(descriptor, 20).decode(errors="replace").strip()
            raise already_running(folder, pid) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def already_running(folder: Path, pid: str) -> ClientError:
    """Return that a process holds the folder."""
    return ClientError(
        f"a `forge up` runs on {folder} already" + (f", process {pid}" * bool(pid)),
        hint="use it as it is, end it with `forge down`, or name another --dir",
        code="already_running",
    )


def holder(folder: Path) -> int | None:
    """Return the process that holds the folder's lock, None where nobody does."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(descriptor, 20) or b"0") or None
    finally:
        os.close(descriptor)
    return None

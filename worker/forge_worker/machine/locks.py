"""Locks between the workers of one machine: a file for each GPU that is lent, and each port.

The kernel frees the locks of a process that dies, even if its job survives. Other workers then see
the job as a foreign process on the GPU or the port, and do not use it.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from forge_schema.model.errors import ForgeError

from forge_worker.files.small_files import try_lock

FOR_ALL = 0o1777
READABLE = 0o644


class LocksUnusable(ForgeError):
    """The lock folder cannot be used."""


def default_folder() -> Path:
    """Return the lock folder shared by all workers of the machine, whatever their user."""
    shared = Path("/run/lock")
    with suppress(OSError):
        if shared.stat().st_mode & stat.S_IWOTH:
            return shared / "forge"
    # Not $TMPDIR, which differs between users.
    return Path("/tmp/forge-lock")  # noqa: S108  sticky, and no link in it is followed


class Locks:
    """The locks of this worker; a lock held by another process is never waited for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()
        self._open: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Lock a GPU or a port; return False if another worker holds it. May be repeated.

        Raises:
            LocksUnusable: the folder cannot be created, or must not be trusted.
        """
        if name in self._open:
            return True
        path = self._folder / name.replace("/", "_")
        try:
            lock = self._opened(path)
        except OSError as error:
            raise LocksUnusable(
                f"GPUs and ports cannot be locked in {self._folder}: {error}",
                hint="name a folder that all workers of this machine may write to: FORGE_LOCK_DIR",
            ) from error
        if not try_lock(lock):
            os.close(lock)
            return False
        self._open[name] = lock
        return True

    def free(self, name: str) -> None:
        """Unlock a GPU or a port. May be repeated."""
        if name in self._open:
            os.close(self._open.pop(name))

    def _opened(self, path: Path) -> int:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        self._make_folder()
        # Two calls: in a sticky folder, the kernel may refuse O_CREAT on another user's file.
        with suppress(FileExistsError):
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, READABLE)
            # Restore the bits that the umask removed.
            os.fchmod(lock, READABLE)
            return lock
        return os.open(path, flags)

    def _make_folder(self) -> None:
        with suppress(FileExistsError):
            self._folder.mkdir(parents=True)
            self._folder.chmod(FOR_ALL)
        if not stat.S_ISDIR(self._folder.lstat().st_mode):
            raise NotADirectoryError(f"{self._folder} is not a folder")

"""The worker's own folder: its id, its lock, and the queue that it serves.

Containers found on a machine belong to the folder whose random id they carry.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO
from uuid import UUID

import psutil
import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.files.small_files import try_lock, write_atomically

ID_FILE, QUEUE_FILE = "id", "queue"
# Whoever only looks, such as `--status`, holds it for an instant.
PATIENCE_S = 1.0
RETRY_S = 0.02
OWN_FOLDER = "give each worker its own FORGE_WORKER_DIR"
STOP_IT = "stop {} first"

log = structlog.get_logger(__name__)


def known_id(folder: Path) -> UUID | None:
    """Return the folder's id; None where none was made yet."""
    return _read(folder / ID_FILE)


def own_id(folder: Path) -> UUID:
    """Return the folder's id, made once. Whoever calls holds the folder's lock.

    Raises:
        OSError: the disk is full or faulty.
    """
    if (known := known_id(folder)) is not None:
        return known
    if (folder / ID_FILE).exists():
        log.warning("folder_id_broken", note="the folder gets a new id")
    made = UUID(bytes=secrets.token_bytes(16), version=4)
    write_atomically(folder / ID_FILE, f"{made}\n", durable=True)
    return made


def queue_served(folder: Path) -> UUID | None:
    """Return the id of the queue whose jobs lie in the folder, as far as that was kept."""
    return _read(folder / QUEUE_FILE)


def set_queue_served(folder: Path, queue: UUID) -> None:
    """Keep whose jobs lie in the folder from now on; `OSError` if the disk is full or faulty."""
    if queue_served(folder) != queue:
        write_atomically(folder / QUEUE_FILE, f"{queue}\n", durable=True)


def _read(path: Path) -> UUID | None:
    try:
        return UUID(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


class FolderTaken(ForgeError):
    """Another agent works in this folder."""


class FolderUnusable(ForgeError):
    """The worker cannot make its folder, or no file in it."""


class FolderGone(ForgeError):
    """The worker's folder was removed under it."""


class HeldFolder:
    """Whether a folder is still the one that it was: `gone` is False until `hold` was called.

    An open descriptor keeps its number from being given to another folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: os.stat_result | None = None

    def hold(self) -> None:
        """Make the folder, and know it from now on; `OSError` if the disk is full or faulty."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It stays open: another folder cannot have its number.
        self._held = os.fstat(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def gone(self) -> bool:
        """Tell whether the folder was removed, moved, or replaced."""
        if self._held is None:
            return False
        try:
            return not os.path.samestat(self._held, self.path.stat())
        except OSError as error:
            return error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}


@contextmanager
def held(folder: Path, *, hint: str = OWN_FOLDER) -> Iterator[None]:
    """Make the folder, and keep a second agent out; `hint` is what to do if there is one: {}.

    Raises:
        FolderTaken: there is one.
        FolderUnusable: the disk is full, or the folder another user's.
    """
    with _lock(folder) as lock:
        if not _taken(lock):
            who = f" (process {pid})" if (pid := holder(folder)) else ""
            raise FolderTaken(
                f"another worker uses {folder}{who}",
                hint=hint.format(f"process {pid}" if pid else "it"),
            )
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _lock(folder: Path) -> IO[str]:
    try:
        # It contains the code and checkpoints of all users.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (folder / "lock").open("a+")
    except OSError as error:
        raise FolderUnusable(
            f"the worker's folder {folder} cannot be used: {error.strerror}",
            hint="choose one that this user can write to: --worker-dir (FORGE_WORKER_DIR)",
        ) from error


def holder(folder: Path) -> int | None:
    """Return the process id of the agent that works in the folder; 0 where that cannot be known.

    None means that there is no agent.
    """
    try:
        with (folder / "lock").open() as lock:
            if try_lock(lock):
                return None
            text = lock.read()
    except FileNotFoundError:
        return None
    with suppress(ValueError):
        if psutil.pid_exists(pid := int(text)):
            return pid
    return 0


def _taken(lock: IO[str]) -> bool:
    until = monotonic() + PATIENCE_S
    while not try_lock(lock):
        if monotonic() > until:
            return False
        sleep(RETRY_S)
    return True

"""The lock of a worker's folder: one agent at a time, and who that is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO

import psutil
from forge_schema.model.errors import ForgeError

from forge_worker.files.locks import try_lock

# Whoever only looks, such as `--status`, holds it for an instant.
PATIENCE_S = 1.0
RETRY_S = 0.02
OWN_FOLDER = "give each worker its own FORGE_WORKER_DIR"
STOP_IT = "stop {} first"


class FolderTaken(ForgeError):
    """Another agent works in this folder."""

    code = "folder_taken"


@contextmanager
def held(folder: Path, *, hint: str = OWN_FOLDER) -> Iterator[None]:
    """Keep a second agent out of the folder; `hint` is what to do if there is one: {}.

    Raises:
        FolderTaken: there is one.
    """
    with (folder / "lock").open("a+") as lock:
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

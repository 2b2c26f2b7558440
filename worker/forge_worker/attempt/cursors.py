"""Named integers of one attempt that outlive the agent: the position of each of its loops."""

import json
import os
from pathlib import Path
from threading import Lock

# Within one page, so that a write is atomic even if the agent is killed.
BYTES = 2048
MODE = 0o600


class Cursors:
    """The numbers in a file; one that was never kept is 0. Thread-safe.

    The file has its final size from the first write on, so that later writes need no more disk. It
    is not synced to disk: after a crash of the machine, no job is left to continue.

    Raises:
        ValueError: the file exists, but was not written by `keep`.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._kept: dict[str, int] = _read(path)

    def __getitem__(self, name: str) -> int:
        return self._kept.get(name, 0)

    def keep(self, **numbers: int) -> None:
        """Store some numbers atomically.

        Raises:
            OSError: they cannot be written.
        """
        with self._lock:
            kept = self._kept | numbers
            if kept != self._kept:
                _write(self._path, json.dumps(kept).encode().ljust(BYTES))
                self._kept = kept


def _read(path: Path) -> dict[str, int]:
    try:
        # A new attempt has no file yet, and `Path.open` takes long to find that out.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    with os.fdopen(file, "rb") as opened:
        kept = json.load(opened)
    if not isinstance(kept, dict) or not all(type(number) is int for number in kept.values()):
        raise ValueError(f"{path} contains no cursors")
    return kept


def _write(path: Path, page: bytes) -> None:
    if len(page) > BYTES:
        raise ValueError(f"more cursors than {path} has room for")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        os.pwrite(file, page, 0)
    finally:
        os.close(file)

"""Folders that stay when a job ends, for the next one: marked while used, dropped by last use.

Who uses one is written down in the attempt's own folder, so that it counts for as long as that
folder is there: also for a container that outlives the agent, and never for longer.

Jobs may write in the folders, and put a link where something else was: whatever lies in one is
reached name by name, following none.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from forge_worker.files.locks import try_lock
from forge_worker.files.safe_files import Parts, entered, remove_tree, weight
from forge_worker.job_runs.folders import Folders

POLL_S = 0.05
TURNS = 256  # lock files; folders that share one are seen to one after the other
Weigh = Callable[[Path, Parts], tuple[int, int]]
"""Tells of what lies below a root when it was last used, and its bytes on disk."""


class KeptFolders:
    """Folders by key below `root`, which one agent's jobs in `jobs` share; sizes in bytes."""

    def __init__(self, root: Path, jobs: Path, max_bytes: int) -> None:
        self.root, self._jobs, self._max_bytes = root, jobs, max_bytes
        self._turns, self._dropped = root / ".turns", root / ".dropped"

    @contextmanager
    def turn(self, key: str, wait: Callable[[], None]) -> Iterator[Path]:
        """Let one at a time see to a folder; what `wait`, called meanwhile, raises ends it."""
        with self._lock_file(key) as file:
            while not try_lock(file.fileno()):
                wait()
                time.sleep(POLL_S)
            yield self.root / key

    def use(self, key: str, folders: Folders) -> None:
        """Mark a folder as used for as long as the attempt's folders are there; in its turn."""
        with (folders.root / "kept").open("a", encoding="utf-8") as marks:
            marks.write(f"{self.root.name}/{key}\n")
        os.utime(self.root / key)  # the order of dropping is the order of use

    def used(self, key: str) -> bool:
        """Tell whether a job on the machine uses a folder; in its turn."""
        mark = f"{self.root.name}/{key}"
        for attempt in self._jobs.iterdir():
            with suppress(OSError):
                if mark in (attempt / "kept").read_text(encoding="utf-8").splitlines():
                    return True
        return False

    def make_room(self) -> None:
        """Drop the folders unused for longest until the rest fits, but none in use."""
        self.drop_oldest([(path.name,) for path in visible(self.root)], _marked)

    def drop_oldest(self, found: Iterable[Parts], weigh: Weigh) -> None:
        """Drop what is oldest of these until the rest fits, but nothing in use."""
        for path in visible(self._dropped):
            _remove(path)
        aged = sorted((*weigh(self.root, parts), parts) for parts in found)
        excess = sum(size for _, size, _ in aged) - self._max_bytes
        for used, size, parts in aged:
            if excess > 0 and self._drop(parts, used, weigh):
                excess -= size

    def _drop(self, parts: Parts, used: int, weigh: Weigh) -> bool:
        key = parts[0]
        with self._lock_file(key) as file:
            if not try_lock(file.fileno()) or self.used(key):
                return False
            # A job may have come and gone since it was weighed.
            if weigh(self.root, parts)[0] != used:
                return False
            # At once out of the way: to remove it takes time.
            gone = self._dropped / secrets.token_hex(16)
            try:
                with entered(self.root, parts[:-1]) as place:
                    os.rename(parts[-1], gone, src_dir_fd=place)
            except OSError:
                return False
        return _remove(gone)

    def _lock_file(self, key: str) -> BufferedWriter:
        for folder in (self._turns, self._dropped):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % TURNS
        return (self._turns / f"{number:03d}").open("ab")


def visible(folder: Path) -> list[Path]:
    """Return what is in a folder, but for what is the keeper's own; nothing where it is not."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _marked(root: Path, parts: Parts) -> tuple[int, int]:
    path = root.joinpath(*parts)
    return path.lstat().st_mtime_ns, weight(path)


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        return remove_tree(path)
    path.unlink(missing_ok=True)
    return True

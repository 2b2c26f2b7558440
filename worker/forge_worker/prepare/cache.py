"""Folders kept between jobs and evicted by last use, among them the owners' model caches.

An attempt records the folders that it uses in its own folder. A cached folder is in use as long as
that folder exists, even if the container outlives the agent.

Jobs can write to the folders and replace anything by a link, so their content is accessed name by
name, without following links.

Killed programs leave locks that are held for as long as their file exists: PyTorch locks the build
of an extension so, git its index, Matplotlib its list of fonts. Others lock a file that stays
(flock), which may as well go while nobody uses the cache.
"""

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BufferedWriter
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Lock
from time import monotonic

from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.files.safe_files import (
    BLOCK,
    Parts,
    entered,
    entries,
    remove_tree,
    status_of,
    walk,
    weight,
)
from forge_worker.files.small_files import try_lock
from forge_worker.runners.process.door import EXIT
from forge_worker.runners.runner import Mount, Runner, RunSpec

THREAD_POLL_S = 0.2
POLL_S = 0.05
LOCK_FILES = 256  # folders that share a lock file wait for each other
Weigh = Callable[[Path, Parts], tuple[int, int]]
"""Returns the time of a path's last use and its bytes on disk."""
CACHE = PurePosixPath("/forge/cache")
PERIOD_S = 60.0
# Entries at this depth below an owner's folder, such as huggingface/hub/models--…, are removed
# whole: a program would mistake a part for the whole.
DEPTH = 3
# Variables that tell programs where to cache downloads, as paths below the cache.
VARIABLES = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
}

NAME = re.compile(
    r"(.*[._-])?(fs)?(lock|lck|lockfile)(\.soft)?|\.matplotlib-lock-.*", re.IGNORECASE
)
# Holders write who they are, if anything. Longer files with such names are data, as `uv.lock` is.
LARGEST = 256
DATA = re.compile(r"(uv|poetry|cargo|yarn|flake|pdm|pipfile|pixi|gemfile)\.lock", re.IGNORECASE)
# What git has written so far is in its lock.
GITS = {"index.lock", "packed-refs.lock", "config.lock", "HEAD.lock", "shallow.lock"}
# Those of uv and pip have many files, and flocks alone.
PASSED_OVER = {("uv",), ("pip",)}
# A cache of more entries is not searched to its end, since each job would wait for it.
MOST = 200_000


class KeyedLock:
    """A lock per key between the threads of one agent: one builds a thing, the others wait."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._own = Lock()

    @contextmanager
    def held(self, key: str, while_wanted: Callable[[], None]) -> Iterator[None]:
        """Hold the key's lock while the block runs; raises what `while_wanted` raises."""
        with self._own:
            lock = self._locks[key]
            self._waiting[key] += 1
        try:
            while not lock.acquire(timeout=THREAD_POLL_S):
                while_wanted()
            try:
                yield
            finally:
                lock.release()
        finally:
            self._forget(key)

    def _forget(self, key: str) -> None:
        with self._own:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._locks[key]


class LruFolders:
    """Folders by key below `root`, shared by the jobs in `jobs`; sizes in bytes."""

    def __init__(self, root: Path, jobs: Path, max_bytes: int) -> None:
        self.root, self._jobs, self._max_bytes = root, jobs, max_bytes
        self._locks, self._dropped = root / ".turns", root / ".dropped"

    @contextmanager
    def locked(self, key: str, wait: Callable[[], None]) -> Iterator[Path]:
        """Lock a folder while the block runs; while waiting, `wait` is called and may raise."""
        with self._lock_file(key) as file:
            while not try_lock(file.fileno()):
                wait()
                time.sleep(POLL_S)
            yield self.root / key

    def mark_used(self, key: str, folders: Folders) -> None:
        """Mark a locked folder as in use for as long as the attempt's own folders exist."""
        with (folders.root / "kept").open("a", encoding="utf-8") as marks:
            marks.write(f"{self.root.name}/{key}\n")
        os.utime(self.root / key)  # folders are evicted in the order of last use

    def in_use(self, key: str, ended: Callable[[Path], bool] = lambda _: False) -> bool:
        """Return whether a job on this machine uses a locked folder, of those not `ended`."""
        mark = f"{self.root.name}/{key}"
        for attempt in self._jobs.iterdir():
            with suppress(OSError):
                if (
                    not ended(attempt)
                    and mark in (attempt / "kept").read_text(encoding="utf-8").splitlines()
                ):
                    return True
        return False

    def make_room(self) -> None:
        """Remove the least recently used folders until the rest fits, but none in use."""
        self.drop_oldest([(path.name,) for path in visible(self.root)], _marked)

    def drop_oldest(self, folders: Iterable[Parts], weigh: Weigh, more: int = 0) -> None:
        """Remove the oldest of these entries until the rest and `more` fit, but none in use."""
        for path in visible(self._dropped):
            _remove(path)
        aged = sorted((*weigh(self.root, parts), parts) for parts in folders)
        excess = sum(size for _, size, _ in aged) + more - self._max_bytes
        for used, size, parts in aged:
            if excess > 0 and self._drop(parts, used, weigh):
                excess -= size

    def _drop(self, parts: Parts, used: int, weigh: Weigh) -> bool:
        key = parts[0]
        with self._lock_file(key) as file:
            if not try_lock(file.fileno()) or self.in_use(key):
                return False
            # A job may have used it since it was measured.
            if weigh(self.root, parts)[0] != used:
                return False
            # Renamed first, because removing it takes time.
            gone = self._dropped / secrets.token_hex(16)
            try:
                with entered(self.root, parts[:-1]) as place:
                    os.rename(parts[-1], gone, src_dir_fd=place)
            except OSError:
                return False
        return _remove(gone)

    def _lock_file(self, key: str) -> BufferedWriter:
        if not self._dropped.is_dir():
            for folder in (self._locks, self._dropped):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % LOCK_FILES
        return (self._locks / f"{number:03d}").open("ab")


def visible(folder: Path) -> list[Path]:
    """Return the entries of a folder that are not hidden; none if it does not exist."""
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


class CacheProvision:
    """Give each job its owner's model cache; all caches together have at most `cache_mb` MiB."""

    def __init__(self, folders: LruFolders, *, period_s: float = PERIOD_S) -> None:
        self._folders, self._period_s = folders, period_s
        self._trimmed = float("-inf")

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the cache mounted and the variables that point to it.

        Raises:
            Stopped: the attempt must stop.
        """
        key = owner_key(attempt.grant.owner)
        self._trim()
        with self._folders.locked(key, attempt.while_wanted) as folder:
            folder.mkdir(mode=0o700, exist_ok=True)
            if not self._folders.in_use(key, _over):
                remove_stale_locks(self._folders.root, key)
            self._folders.mark_used(key, attempt.folders)
        cache = Mount(folder, CACHE, writable=True, given=True)
        place = runner.place(cache)
        env = {name: str(place / below) for name, below in VARIABLES.items()}
        return replace(spec, mounts=(*spec.mounts, cache), env={**env, **spec.env})

    def _trim(self) -> None:
        """If the caches are too large, remove the oldest entries of owners without running jobs."""
        if monotonic() - self._trimmed < self._period_s:
            return
        self._trimmed = monotonic()
        root = self._folders.root
        folders = (parts for owner in visible(root) for parts in _parts(root, (owner.name,), DEPTH))
        self._folders.drop_oldest(folders, _aged)


def _over(attempt: Path) -> bool:
    """Return whether no process of an attempt is left: its output may take long to be stored."""
    with suppress(OSError, ValueError):
        return bool(json.loads((attempt / EXIT).read_text(encoding="utf-8")))
    return False


def owner_key(owner: str) -> str:
    """Return the unique folder name of an owner."""
    digest = hashlib.sha256(owner.encode()).hexdigest()[:16]
    return f"{digest}-{re.sub(r'[^A-Za-z0-9_-]', '_', owner)[:40]}"


def _parts(root: Path, start: Parts, depth: int) -> Iterator[Parts]:
    """Yield the entries at `depth` below a folder, and the files above it."""
    for name, status in entries(root, start):
        if depth > 1 and stat.S_ISDIR(status.st_mode):
            yield from _parts(root, (*start, name), depth - 1)
        else:
            yield (*start, name)


def _aged(root: Path, parts: Parts) -> tuple[int, int]:
    """Return the last use of an entry, according to its files, and its bytes on disk."""
    statuses = [own] if (own := status_of(root, parts)) else []
    statuses += [inner for _, inner in walk(root, parts)]
    # A folder's access time is useless, because this function reads the folder.
    files = [each for each in statuses if not stat.S_ISDIR(each.st_mode)]
    used = max((max(each.st_mtime_ns, each.st_atime_ns) for each in files), default=0)
    return used, sum(each.st_blocks for each in files) * BLOCK


def remove_stale_locks(root: Path, key: str) -> None:
    """Remove all locks from a cache that nobody uses."""
    entries_there = islice(walk(root, (key,), lambda parts: parts[1:] not in PASSED_OVER), MOST)
    for parts, status in [item for item in entries_there if _is_lock(item[0][-1], item[1])]:
        _remove_lock(root, parts, status)


def _is_lock(name: str, status: os.stat_result) -> bool:
    if stat.S_ISREG(status.st_mode):
        if name in GITS:
            return True
        return bool(NAME.fullmatch(name)) and not DATA.fullmatch(name) and status.st_size <= LARGEST
    return bool(NAME.fullmatch(name))


def _remove_lock(root: Path, parts: Parts, status: os.stat_result) -> None:
    with suppress(OSError), entered(root, parts[:-1]) as place:
        if stat.S_ISDIR(status.st_mode):
            # Some locks are folders; one with something in it is left.
            os.rmdir(parts[-1], dir_fd=place)
        else:
            os.unlink(parts[-1], dir_fd=place)

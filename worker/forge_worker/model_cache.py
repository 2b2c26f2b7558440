"""Model caches that stay between jobs: one folder for each owner, shared with no other."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from time import monotonic

from forge_worker.attempt import Attempt
from forge_worker.below import BLOCK
from forge_worker.kept import KeptFolders, visible
from forge_worker.runners.runner import Mount, Runner, RunSpec

CACHE = PurePosixPath("/forge/cache")
PERIOD_S = 60.0
# What is dropped whole lies so deep below an owner's folder, as huggingface/hub/models--… does: a
# part of it would be taken for all of it.
DEPTH = 3
# Where programs look that keep what they fetched, below the cache.
VARIABLES = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "PIP_CACHE_DIR": "pip",
}


class CacheProvision:
    """Gives each job its owner's cache; what programs cannot write there, they do without."""

    def __init__(self, kept: KeptFolders, *, period_s: float = PERIOD_S) -> None:
        self._kept, self._period_s = kept, period_s
        self._trimmed = float("-inf")

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:
        """Return the start with the cache, and the variables that lead there.

        Raises:
            Stopped: the attempt must stop.
        """
        key = owner_key(attempt.grant.owner)
        self._trim()
        with self._kept.turn(key, attempt.while_wanted) as folder:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._kept.use(key, attempt.folders)
        cache = Mount(folder, CACHE, writable=True, given=True)
        place = runner.place(cache)
        env = {name: str(place / below) for name, below in VARIABLES.items()}
        return replace(spec, mounts=(*spec.mounts, cache), env={**env, **spec.env})

    def _trim(self) -> None:
        """Drop the oldest entries of the owners that run nothing, if all is too much."""
        if monotonic() - self._trimmed < self._period_s:
            return
        self._trimmed = monotonic()
        entries = [entry for owner in visible(self._kept.root) for entry in _entries(owner, DEPTH)]
        self._kept.drop_oldest([_aged(entry) for entry in entries])


def owner_key(owner: str) -> str:
    """Return a folder's name for an owner, which no other has."""
    digest = hashlib.sha256(owner.encode()).hexdigest()[:16]
    return f"{digest}-{re.sub(r'[^A-Za-z0-9_-]', '_', owner)[:40]}"


def _entries(folder: Path, depth: int) -> Iterator[Path]:
    """Find what lies at a depth, or ends before it; no link is followed."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path), depth - 1)
            else:
                yield Path(entry.path)


def _aged(entry: Path) -> tuple[int, int, Path]:
    """Return when something was last used, as far as the disk tells, and what it weighs."""
    used, size = 0, 0
    below = [Path(at) / name for at, _, names in os.walk(entry) for name in names]
    for path in below if entry.is_dir() and not entry.is_symlink() else [entry]:
        with suppress(OSError):
            status = path.lstat()
            used = max(used, status.st_mtime_ns, status.st_atime_ns)
            size += status.st_blocks * BLOCK
    return used, size, entry

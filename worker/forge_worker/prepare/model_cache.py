"""Model caches that stay between jobs: one folder for each owner, shared with no other."""

import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from time import monotonic

from forge_worker.files.safe_files import BLOCK, Parts, entries, status_of, walk
from forge_worker.job_runs.attempt import Attempt
from forge_worker.prepare.lru_folders import KeptFolders, visible
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
        root = self._kept.root
        found = (parts for owner in visible(root) for parts in _parts(root, (owner.name,), DEPTH))
        self._kept.drop_oldest(found, _aged)


def owner_key(owner: str) -> str:
    """Return a folder's name for an owner, which no other has."""
    digest = hashlib.sha256(owner.encode()).hexdigest()[:16]
    return f"{digest}-{re.sub(r'[^A-Za-z0-9_-]', '_', owner)[:40]}"


def _parts(root: Path, start: Parts, depth: int) -> Iterator[Parts]:
    """Find what lies at a depth below a folder of the root's, or ends before it."""
    for name, found in entries(root, start):
        if depth > 1 and stat.S_ISDIR(found.st_mode):
            yield from _parts(root, (*start, name), depth - 1)
        else:
            yield (*start, name)


def _aged(root: Path, parts: Parts) -> tuple[int, int]:
    """Return when something was last used, as far as the disk tells, and what it weighs."""
    found = [own] if (own := status_of(root, parts)) else []
    found += [inner for _, inner in walk(root, parts)]
    # That a folder was read is no use: this here reads it.
    files = [each for each in found if not stat.S_ISDIR(each.st_mode)]
    used = max((max(each.st_mtime_ns, each.st_atime_ns) for each in files), default=0)
    return used, sum(each.st_blocks for each in files) * BLOCK

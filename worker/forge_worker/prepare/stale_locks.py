"""Locks of killed programs in a cache that is kept: who finds one waits for a process long gone.

Such a lock is held for as long as its file exists. PyTorch locks the build of an extension so, git
its index, Matplotlib its list of fonts. Others lock a file that stays (flock), for which it does no
harm to go while nobody uses the cache.
"""

import os
import re
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path

from forge_worker.files.safe_files import Parts, entered, walk

NAME = re.compile(r"(.*[._-])?(lock|lck|lockfile)|\.matplotlib-lock-.*", re.IGNORECASE)
# Holders write who they are, if anything. Longer files with such names are data, as `uv.lock` is.
LARGEST = 256
DATA = re.compile(r"(uv|poetry|cargo|yarn|flake|pdm|pipfile|pixi|gemfile)\.lock", re.IGNORECASE)
# What git has written so far is in its lock.
GITS = {"index.lock", "packed-refs.lock", "config.lock", "HEAD.lock", "shallow.lock"}
# Those of uv and pip have many files, and flocks alone.
PASSED_OVER = {("uv",), ("pip",)}
# A cache of more entries is not searched to its end, since each job would wait for it.
MOST = 200_000


def remove_stale_locks(root: Path, key: str) -> None:
    """Remove all locks from a cache that nobody uses.

    Args:
        root: the folder of all caches.
        key: the cache's name in it.
    """
    found = islice(walk(root, (key,), lambda parts: parts[1:] not in PASSED_OVER), MOST)
    for parts, status in [one for one in found if _is_lock(one[0][-1], one[1])]:
        _remove(root, parts, status)


def _is_lock(name: str, status: os.stat_result) -> bool:
    if stat.S_ISREG(status.st_mode):
        if name in GITS:
            return True
        return bool(NAME.fullmatch(name)) and not DATA.fullmatch(name) and status.st_size <= LARGEST
    return bool(NAME.fullmatch(name))


def _remove(root: Path, parts: Parts, status: os.stat_result) -> None:
    with suppress(OSError), entered(root, parts[:-1]) as place:
        if stat.S_ISDIR(status.st_mode):
            # Some locks are folders; one with something in it is left.
            os.rmdir(parts[-1], dir_fd=place)
        else:
            os.unlink(parts[-1], dir_fd=place)

"""The times of restored files, by which programs tell which of their checkpoints is the newest."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from forge_worker.files.safe_files import Parts, entered, walk

# So many of the newest files get times of change (ctime) that differ. The kernel counts these in
# ticks of up to 10 ms, so it would take long for all.
APART, TICK_S = 16, 0.012
# If a file is so much older than its last change, its mtime was set.
SET_NS = 1_000_000_000

T = TypeVar("T")


def set_times(root: Path, times: Mapping[Parts, int], *, folders_below: Parts) -> None:
    """Give files below the root their mtimes in ns, the oldest first, so that ctimes follow.

    A folder below `folders_below` gets the time of the newest file in it, since that of its own was
    not kept.
    """
    folders: dict[Parts, int] = {}
    for parts, at in times.items():
        for depth in range(len(folders_below) + 1, len(parts)):
            if parts[: len(folders_below)] == folders_below:
                folders[parts[:depth]] = max(at, folders.get(parts[:depth], at))
    for one in (times, folders):
        for parts, at in _in_order(one.items()):
            with suppress(OSError), entered(root, parts[:-1]) as place:
                os.utime(parts[-1], ns=(at, at), dir_fd=place, follow_symlinks=False)


def give_in_order(root: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder's contents, in the order of the mtimes that were set.

    Nothing else may write there meanwhile.
    """
    found = [
        (parts, s.st_mtime_ns if s.st_ctime_ns - s.st_mtime_ns > SET_NS else 0)
        for parts, s in walk(root)
    ]
    for parts, _ in _in_order(found):
        with suppress(OSError), entered(root, parts[:-1]) as place:
            os.chown(parts[-1], uid, gid, dir_fd=place, follow_symlinks=False)


def _in_order(items: Iterable[tuple[T, int]]) -> Iterator[tuple[T, int]]:
    """Yield things by their time, the newest with a tick of the clock between."""
    ordered = sorted(items, key=lambda one: one[1])
    newest = set(sorted({at for _, at in ordered})[1:][-APART:])
    last = None
    for item, at in ordered:
        if at != last and at in newest:
            time.sleep(TICK_S)
        last = at
        yield item, at

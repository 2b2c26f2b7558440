"""Put a restored checkpoint in its place: a folder of the project, and files beside its code."""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TypeVar

from forge_schema.model.bundles import WORK
from forge_schema.model.errors import ForgeError

from forge_worker.files.safe_files import Parts, entered, remove_tree, status_from, status_of, walk
from forge_worker.files.saved_files import FilesSeen, SavedFiles

# Some programs compare times in whole seconds.
SECOND_NS = 1_000_000_000

# So many of the newest files get times of change (ctime) that differ. The kernel counts these in
# ticks of up to 10 ms, so it would take long for all.
APART, TICK_S = 16, 0.012
# If a file is so much older than its last change, its mtime was set.
SET_NS = 1_000_000_000

T = TypeVar("T")


class PlaceTaken(ForgeError):
    """The project has something else where its checkpoint folder should be."""


def place_checkpoint(saved: SavedFiles, restored: Path) -> None:
    """Move what was restored to where the job expects it, before the job starts.

    The files that the project has in its checkpoint folder are what the job starts from, unless a
    checkpoint was restored. Files that the job's patterns name replace those of the project.

    Raises:
        PlaceTaken: a file or a link is in the way of the checkpoint folder.
        OSError: the disk is full or faulty.
    """
    saved.patterns.add(_named(restored))
    anything = any(restored.iterdir())
    _place_named(saved, restored)
    if saved.path != restored:
        _place_folder(saved, restored, anything=anything)


def give_times(saved: SavedFiles, times: Mapping[str, int], project: FilesSeen) -> FilesSeen:
    """Give restored files their mtimes in ns; return the project's own files as they are then.

    What the job's patterns name in the project was unpacked just now. It gets an earlier time than
    anything restored, as it had when that was saved: otherwise, a program that continues from its
    newest file would take one of the project's.
    """
    if not times:
        return project
    before = min(times.values()) - SECOND_NS
    own = [path for path, (_, at, _) in project.files.items() if at > before]
    # Others were replaced by restored ones.
    own = [path for path in own if _inode(saved, path) == project.files[path][2]]
    wanted = {**dict.fromkeys(own, before), **times}
    placed = {saved.place(path): at for path, at in wanted.items()}
    set_times(saved.root, placed, folders_below=saved.folder)
    statuses = {path: status_of(saved.root, saved.place(path)) for path in own}
    now = {path: status_from(status) for path, status in statuses.items() if status is not None}
    return FilesSeen(project.files | now, project.links)


def _inode(saved: SavedFiles, path: str) -> int | None:
    status = status_of(saved.root, saved.place(path))
    return None if status is None else status.st_ino


def _named(restored: Path) -> list[Parts]:
    """Return the paths of restored files in the work folder."""
    files = walk(restored, (WORK,))
    return [parts[1:] for parts, status in files if not stat.S_ISDIR(status.st_mode)]


def _place_named(saved: SavedFiles, restored: Path) -> None:
    for inner in _named(restored):
        with entered(restored, (WORK, *inner[:-1])) as source:
            *above, last = (*saved.work, *inner)
            _make(saved.root, tuple(above), replacing=True)
            _clear(saved.root, (*above, last))
            with entered(saved.root, tuple(above)) as target:
                os.rename(last, last, src_dir_fd=source, dst_dir_fd=target)
    remove_tree(restored / WORK)


def _place_folder(saved: SavedFiles, restored: Path, *, anything: bool) -> None:
    *above, last = saved.folder
    name = str(PurePosixPath(*saved.folder[len(saved.work) :]))
    try:
        _make(saved.root, tuple(above))
        status = status_of(saved.root, saved.folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            if not anything:
                restored.rmdir()
                return
            _clear(saved.root, saved.folder)
        with entered(saved.root, tuple(above)) as place:
            # It refuses to take the place of a file or a link.
            os.rename(restored, last, dst_dir_fd=place)
    except (FileExistsError, NotADirectoryError) as error:
        raise PlaceTaken(
            f"{name!r} cannot be the checkpoint folder, because the project has a file or a link"
            " there",
            hint="name another folder with --checkpoint-dir, or leave the file out of the project",
        ) from error


def _make(root: Path, parts: Parts, *, replacing: bool = False) -> None:
    """Make folders below the root; if `replacing`, in place of files and links as well."""
    for depth, part in enumerate(parts, 1):
        status = status_of(root, parts[:depth])
        if status is not None and replacing and not stat.S_ISDIR(status.st_mode):
            _clear(root, parts[:depth])
            status = None
        if status is None:
            with entered(root, parts[: depth - 1]) as place:
                os.mkdir(part, dir_fd=place)


def _clear(root: Path, parts: Parts) -> None:
    """Remove what is at a place, if anything is; no link is followed."""
    status = status_of(root, parts)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        # The folders above are the agent's own: no program of the job runs yet.
        remove_tree(root.joinpath(*parts))
        return
    with entered(root, parts[:-1]) as place:
        os.unlink(parts[-1], dir_fd=place)


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
    for moments in (times, folders):
        for parts, at in _in_order(moments.items()):
            with suppress(OSError), entered(root, parts[:-1]) as place:
                os.utime(parts[-1], ns=(at, at), dir_fd=place, follow_symlinks=False)


def give_in_order(root: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder's contents, in the order of the mtimes that were set.

    Nothing else may write there meanwhile.
    """
    files = [
        (parts, s.st_mtime_ns if s.st_ctime_ns - s.st_mtime_ns > SET_NS else 0)
        for parts, s in walk(root)
    ]
    for parts, _ in _in_order(files):
        with suppress(OSError), entered(root, parts[:-1]) as place:
            os.chown(parts[-1], uid, gid, dir_fd=place, follow_symlinks=False)


def _in_order(items: Iterable[tuple[T, int]]) -> Iterator[tuple[T, int]]:
    """Yield things by their time, the newest with a tick of the clock between."""
    ordered = sorted(items, key=lambda pair: pair[1])
    newest = set(sorted({at for _, at in ordered})[1:][-APART:])
    last = None
    for item, at in ordered:
        if at != last and at in newest:
            time.sleep(TICK_S)
        last = at
        yield item, at

"""Read, copy and remove a job's folders without following symbolic links."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

Status = tuple[int, int, int]
"""Size, mtime in ns and inode of a file, compared to detect a change."""

Listing = dict[str, Status]
"""Relative path to status."""

Where = Callable[[str], tuple[Path, str]]
"""Returns for a path in a listing a folder, and the path below it."""

Parts = tuple[str, ...]
"""A path below a root, name by name."""

# Deeper entries are ignored; a deeper path would not fit in an object's name.
DEPTH = 500
BLOCK = 512  # the unit of st_blocks on every file system
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}
# O_PATH, where it exists, opens a folder even without permission to read it.
CLOSED_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW

PIECE = 1 << 16


@contextmanager
def opened(root: Path, relative: str) -> Iterator[BinaryIO]:
    """Open a regular file below a folder for reading.

    Raises:
        OSError: it does not exist, or a link is in the path.
    """
    *folders, name = parts_of(relative)
    with entered(root, tuple(folders)) as place, opened_in(place, name) as file:
        yield file


@contextmanager
def opened_in(folder: int, name: str) -> Iterator[BinaryIO]:
    """Open a regular file in an open folder, as `opened`."""
    file = os.open(name, _READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{name} is not a regular file")
        with os.fdopen(file, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(file)


def parts_of(path: str) -> Parts:
    """Return the names of a path, which costs a tenth of what pathlib takes unless it is odd."""
    parts = tuple(path.split("/"))
    return PurePosixPath(path).parts if "" in parts or "." in parts else parts


def odd_kind(path: Path) -> str:
    """Return what is at a path instead of a regular file, such as `a link`; "" if nothing is."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        return "" if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "no regular file")
    return ""


def touch(root: Path, name: str) -> None:
    """Create an empty file if the folder exists; an existing file or link is left alone."""
    with suppress(OSError), entered(root, ()) as place:
        os.close(os.open(name, _MAKE, mode=0o644, dir_fd=place))


def give(root: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder and everything in it, without following links.

    Raises:
        OSError: the folder does not exist or is a link.
    """
    give_alone(root, uid, gid)
    pending: list[Parts] = [()]
    while pending:
        parts = pending.pop()
        with suppress(OSError), entered(root, parts) as place:
            inner = list(_given(place, uid, gid))
            pending += [(*parts, name) for name in inner if len(parts) < DEPTH]


def give_alone(root: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder, but not of its contents.

    Raises:
        OSError: the folder does not exist or is a link.
    """
    with entered(root, ()) as place:
        os.fchown(place, uid, gid)


def _given(place: int, uid: int, gid: int) -> Iterator[str]:
    """Change the owner of a folder's entries, and yield the names of its folders."""
    for name in os.listdir(place):
        with suppress(FileNotFoundError):
            os.chown(name, uid, gid, dir_fd=place, follow_symlinks=False)
            if stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                yield name


def listing(root: Path) -> Listing:
    """Return the regular files below a folder, without links and special files."""
    return {
        "/".join(parts): status_from(status)
        for parts, status in walk(root)
        if stat.S_ISREG(status.st_mode)
    }


def status_in(file: BinaryIO) -> Status:
    """Return the status of an open file."""
    return status_from(os.fstat(file.fileno()))


def weight(root: Path) -> int:
    """Return the bytes on disk of everything below a folder; hard links count once."""
    blocks = {(s.st_dev, s.st_ino): s.st_blocks for _, s in walk(root)}
    return sum(blocks.values()) * BLOCK


def walk(
    root: Path, start: Parts = (), enters: Callable[[Parts], bool] = lambda _: True
) -> Iterator[tuple[Parts, os.stat_result]]:
    """Walk everything below the root, or below `start` in it, skipping entries that vanish.

    `enters` tells whether to walk a folder too, by its path from the root.
    """
    pending = [start]
    while pending:
        parts = pending.pop()
        for name, status in entries(root, parts):
            yield (*parts, name), status
            deep = len(parts) - len(start) >= DEPTH
            if stat.S_ISDIR(status.st_mode) and not deep and enters((*parts, name)):
                pending.append((*parts, name))


def entries(root: Path, parts: Parts) -> list[tuple[str, os.stat_result]]:
    """Return the entries of a folder below the root; none if it does not exist."""
    statuses = []
    with suppress(OSError), entered(root, parts) as place:
        for name in os.listdir(place):  # noqa: PTH208  a descriptor has no pathlib
            with suppress(OSError):
                statuses.append((name, os.stat(name, dir_fd=place, follow_symlinks=False)))
    return statuses


def status_of(root: Path, parts: Parts) -> os.stat_result | None:
    """Return the status of one entry below the root, links included; None if there is none."""
    with suppress(OSError), entered(root, parts[:-1]) as place:
        return os.stat(parts[-1], dir_fd=place, follow_symlinks=False)
    return None


def target_of(root: Path, parts: Parts) -> str | None:
    """Return what a link below the root says; None if there is none."""
    with suppress(OSError), entered(root, parts[:-1]) as place:
        return os.readlink(parts[-1], dir_fd=place)
    return None


@contextmanager
def entered(root: Path, parts: Parts) -> Iterator[int]:
    """Open a folder below the root, one name at a time.

    Raises:
        OSError: it does not exist, or a link is in the path.
    """
    place = os.open(root, _FOLDER)
    try:
        for name in parts:
            inner = os.open(name, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        yield place
    finally:
        os.close(place)


def status_from(result: os.stat_result) -> Status:
    """Return what tells whether a file has changed."""
    return result.st_size, result.st_mtime_ns, result.st_ino


def remove_tree(root: Path) -> bool:
    """Remove a folder and its contents, whatever their depth or mode; False if anything remains.

    Anything else at that path is removed too. No link is followed. Folders are moved up below the
    root
    before they are entered, so that neither path length nor the number of open files sets a limit.
    """
    with suppress(OSError):
        try:
            mode = os.lstat(root).st_mode
        except FileNotFoundError:
            # A job that never got as far has none, and each further look costs as much again.
            return True
        if not stat.S_ISDIR(mode):
            root.unlink()
        open_up(root)
        top = os.open(root, FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        root.rmdir()
    return not os.path.lexists(root)


def open_up(name: str | Path, place: int | None = None) -> None:
    """Give this user access to a folder, whatever its mode.

    Raises:
        OSError: it does not exist or is a link.
    """
    folder = os.open(name, CLOSED_FOLDER, dir_fd=place)
    try:
        # Go by the descriptor: the name may refer to something else by now.
        os.chmod(f"/dev/fd/{folder}", 0o700)  # noqa: PTH101  not an ordinary path
    finally:
        os.close(folder)


def _empty(top: int) -> None:
    pending = _clear(top, top)
    while pending:
        name = pending.pop()
        with suppress(OSError):
            place = os.open(name, FOLDER, dir_fd=top)
            try:
                pending += _clear(place, top)
            finally:
                os.close(place)
            os.rmdir(name, dir_fd=top)


def _clear(place: int, top: int) -> list[str]:
    """Remove the files in a folder, move its folders to the top, and return their new names."""
    moved = []
    for entry in list(os.scandir(place)):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                open_up(entry.name, place)
                moved.append(name := secrets.token_hex(16))
                os.rename(entry.name, name, src_dir_fd=place, dst_dir_fd=top)
            else:
                os.unlink(entry.name, dir_fd=place)
    return moved


def copy(source: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
    """Copy the first `size` bytes of a file, keeping it sparse.

    `go_on` is called before each piece; what it raises ends the copy.

    Raises:
        OSError: this machine's disk is full or faulty.
    """
    with into.open("wb") as target:
        left = size
        while piece := source.read(min(PIECE, left)):
            go_on()
            left -= len(piece)
            if piece == bytes(len(piece)):
                target.seek(len(piece), os.SEEK_CUR)
            else:
                target.write(piece)
        target.truncate()

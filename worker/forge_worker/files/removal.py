"""Removing a folder that a job has filled, whatever it made of it."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# One that may not be read can be held all the same, where there is such a descriptor.
CLOSED_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(root: Path) -> bool:
    """Remove a folder and all in it, however deep or closed; False when something would not go.

    What is no folder, but stands where one should be, is removed too.

    No link is followed. Folders are moved up below the root before they are entered, so that
    neither the length of a path nor the number of open files sets a limit.
    """
    with suppress(OSError):
        if root.is_symlink() or not root.is_dir():
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
    """Let this user into a folder, be it closed to everybody.

    Raises:
        OSError: there is none of this name, or a link is.
    """
    folder = os.open(name, CLOSED_FOLDER, dir_fd=place)
    try:
        # The descriptor is of the folder itself; its name may be another thing's by now.
        os.chmod(f"/dev/fd/{folder}", 0o700)  # noqa: PTH101  it is no path of ours
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
    """Remove the files of a folder, and return its folders' names below the top."""
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

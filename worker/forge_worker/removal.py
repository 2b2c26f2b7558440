"""Removing a folder that a job has filled, whatever it made of it."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(root: Path) -> bool:
    """Remove a folder and all in it, however deep or closed; False when something would not go.

    What is no folder, but stands where one should be, is removed too.

    No link is followed. Folders are moved up below the root before they are entered, so that
    neither the length of a path nor the number of open files sets a limit.
    """
    with suppress(OSError):
        if root.is_symlink() or not root.is_dir():
            root.unlink()
        root.chmod(0o700)
        top = os.open(root, FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        root.rmdir()
    return not os.path.lexists(root)


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
                os.chmod(entry.name, 0o700, dir_fd=place)
                moved.append(name := secrets.token_hex(16))
                os.rename(entry.name, name, src_dir_fd=place, dst_dir_fd=top)
            else:
                os.unlink(entry.name, dir_fd=place)
    return moved

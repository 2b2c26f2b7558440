"""Short names for folders with a long path: the path of a socket may have 107 bytes."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

PLACE = Path("/tmp")  # noqa: S108  a link there is short, and only its owner can replace it
# Ray appends 68 bytes to the folder for temporary files, `multiprocessing` 32.
LONGEST = 38
DIGITS = 16


def short_path(folder: Path) -> Path:
    """Return a short path to a folder: its own, or else a link, which lasts until `forget_path`.

    If no link can be made, the folder's own path is returned.
    """
    if len(os.fsencode(folder)) <= LONGEST:
        return folder
    link = _link(folder)
    _tidy()
    with suppress(OSError):
        link.symlink_to(folder)
    return link if _is_ours(link, folder) else folder


def forget_path(folder: Path) -> None:
    """Remove the link to a folder, if there is one. May be repeated."""
    link = _link(folder)
    if _is_ours(link, folder):
        link.unlink(missing_ok=True)


def _tidy() -> None:
    """Remove the links to folders that are gone, as with a worker that was killed and deleted."""
    for link in PLACE.glob(f"forge-{'[0-9a-f]' * DIGITS}"):
        with suppress(OSError):
            folder = link.readlink()
            if link == _link(folder) and not folder.exists():
                forget_path(folder)


def _link(folder: Path) -> Path:
    return PLACE / f"forge-{sha256(os.fsencode(folder)).hexdigest()[:DIGITS]}"


def _is_ours(link: Path, folder: Path) -> bool:
    """Return whether a link leads to the folder and belongs to this user, not to somebody else."""
    try:
        return link.readlink() == folder and link.lstat().st_uid == os.geteuid()
    except OSError:
        return False

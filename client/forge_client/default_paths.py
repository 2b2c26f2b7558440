"""Default paths of this user's files on this machine, and how private ones are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

PRIVATE = 0o600


def default_dir() -> Path:
    """Return the default folder of `forge up`."""
    return _folders().user_data_path


def pointer() -> Path:
    """Return the file that names the folder of this user's latest `forge up`."""
    return _folders().user_state_path / "up"


def ups() -> Path:
    """Return the folder in which each running `forge up` of this user has a file."""
    return _folders().user_state_path / "ups"


def logins() -> Path:
    """Return the folder of the keys of `forge login`, a file for each server."""
    return _folders().user_state_path / "logins"


def authorities() -> Path:
    """Return the folder of servers' own authorities, a file for each server of `forge login`."""
    return _folders().user_state_path / "authorities"


def trusted() -> Path:
    """Return the folder with an empty file for each server that a project may name."""
    return _folders().user_state_path / "trusted"


def studies() -> Path:
    """Return the file with the studies of this user's searches that go through a server."""
    return _folders().user_state_path / "studies" / "studies.db"


def packed() -> Path:
    """Return the folder of what this user's projects were packed into, by what they contained."""
    return _folders().user_cache_path / "packed"


def locks() -> Path:
    """Return the folder of the locks that were made for this user's projects."""
    return _folders().user_cache_path / "locks"


def _folders() -> PlatformDirs:
    # It takes a while to import, and most commands need no folder.
    from platformdirs import PlatformDirs  # noqa: PLC0415

    return PlatformDirs("forge", appauthor=False)


def write_privately(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Put a file in the place of another; whoever reads has the old text or the new one.

    Raises:
        OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    if mode != PRIVATE:
        beside.chmod(mode)
    beside.replace(path)

"""Default paths on this machine."""

from pathlib import Path

from platformdirs import user_cache_path, user_data_path, user_state_path


def default_dir() -> Path:
    """Return the default folder of `forge up`."""
    return user_data_path("forge")


def pointer() -> Path:
    """Return the file that names the folder of this user's latest `forge up`."""
    return user_state_path("forge") / "up"


def ups() -> Path:
    """Return the folder in which each running `forge up` of this user has a file."""
    return user_state_path("forge") / "ups"


def logins() -> Path:
    """Return the folder of the keys of `forge login`, a file for each server."""
    return user_state_path("forge") / "logins"


def trusted() -> Path:
    """Return the folder with an empty file for each server that a project may name."""
    return user_state_path("forge") / "trusted"


def studies() -> Path:
    """Return the file with the studies of this user's searches that go through a server."""
    return user_state_path("forge") / "studies" / "studies.db"


def packed() -> Path:
    """Return the folder of what this user's projects were packed into, by what they contained."""
    return user_cache_path("forge") / "packed"


def locks() -> Path:
    """Return the folder of the locks that were made for this user's projects."""
    return user_cache_path("forge") / "locks"

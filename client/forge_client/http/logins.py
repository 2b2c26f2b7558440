"""The keys of `forge login`: a file for each server, which only this user can read."""

import os
from pathlib import Path
from urllib.parse import quote

from forge_client import default_paths
from forge_client.errors import ClientError
from forge_client.http.server import read_key


def keep(url: str, key: str) -> None:
    """Store a server's key."""
    path = _path(url)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(key)
    beside.replace(path)


def kept(url: str) -> str | None:
    """Return a server's key, or None if there is none that can be read."""
    try:
        return read_key(_path(url))
    except ClientError:
        return None


def forget(url: str) -> None:
    """Delete a server's key. Idempotent."""
    _path(url).unlink(missing_ok=True)


def _path(url: str) -> Path:
    return default_paths.logins() / quote(url, safe="")

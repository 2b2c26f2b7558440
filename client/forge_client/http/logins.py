"""What this user lets servers have: the keys of `forge login`, and keys that a folder asks for.

There is a file for each server, which only this user can read. One that a folder's forge.toml names
may be a stranger's, so keys are sent to it only after the user has agreed.
"""

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from forge_client import default_paths
from forge_client.errors import ClientError
from forge_client.http import read_key

LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def keep(url: str, key: str) -> None:
    """Store a server's key."""
    path = _path(url)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    default_paths.write_privately(path, key)


def kept(url: str) -> str | None:
    """Return a server's key, or None if there is none that can be read."""
    try:
        return read_key(_path(url))
    except ClientError:
        return None


def servers() -> list[str]:
    """Return the servers for which keys are kept."""
    folder = default_paths.logins()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [unquote(name) for name in names if not name.startswith(".")]


def forget(url: str) -> None:
    """Delete a server's key. Idempotent."""
    _path(url).unlink(missing_ok=True)


def _path(url: str) -> Path:
    return default_paths.logins() / quote(url, safe="")


def keep_authority(url: str, certificate: str) -> None:
    """Store the certificate of a server's own authority, which is trusted for this server only."""
    path = _authority(url)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    default_paths.write_privately(path, certificate)


def authority(url: str) -> Path | None:
    """Return the file with the certificate of a server's own authority, if one was stored."""
    path = _authority(url)
    return path if path.is_file() else None


def _authority(url: str) -> Path:
    return default_paths.authorities() / quote(url, safe="")


def is_trusted(url: str) -> bool:
    """Tell whether a key may be sent to a server that only a folder names."""
    return _agreed(url).is_file()


def trust(url: str) -> None:
    """Let keys be sent to this server from now on. Idempotent."""
    path = _agreed(url)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)


def check_trusted(url: str) -> None:
    """Refuse to send a key to a server that only a folder names: anybody may have written it.

    Raises:
        ClientError: it is not trusted, or the key would cross a network unencrypted.
    """
    place = urlsplit(url)
    if place.scheme == "http" and place.hostname not in LOOPBACK:
        raise _refused(
            f"the forge.toml of this folder names {url}, to which your API key would travel"
            " unencrypted",
            "use https; or set FORGE_URL to this URL if the network is your own",
        )
    if not is_trusted(url):
        raise _refused(
            f"the forge.toml of this folder names the server {url}, to which your API key was never"
            " sent",
            "if it is yours, set FORGE_URL to it, or run the command in a terminal, which asks",
        )


def _agreed(url: str) -> Path:
    return default_paths.trusted() / quote(url, safe="")


def _refused(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="server_not_trusted")

"""The servers that a folder's forge.toml named and this user sends an API key to."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from forge_client import default_paths
from forge_client.errors import ClientError

LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_known(url: str) -> bool:
    """Tell whether a key may be sent to this server."""
    return _path(url).is_file()


def remember(url: str) -> None:
    """Let keys be sent to this server from now on. Idempotent."""
    path = _path(url)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)


def check(url: str) -> None:
    """Refuse to send a key to a server that only a folder names: anybody may have written it.

    Raises:
        ClientError: it is not known, or the key would cross a network unencrypted.
    """
    place = urlsplit(url)
    if place.scheme == "http" and place.hostname not in LOOPBACK:
        raise _refused(
            f"the forge.toml of this folder names {url}, to which your API key would travel"
            " unencrypted",
            "use https; or set FORGE_URL to this URL if the network is your own",
        )
    if not is_known(url):
        raise _refused(
            f"the forge.toml of this folder names the server {url}, to which your API key was never"
            " sent",
            "if it is yours, set FORGE_URL to it, or run the command in a terminal, which asks",
        )


def _path(url: str) -> Path:
    return default_paths.trusted() / quote(url, safe="")


def _refused(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="server_not_trusted")

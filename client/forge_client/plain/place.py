"""Where Forge is, as far as that is plain: a server named by variables, or a running `forge up`."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from forge_client.plain.wire import NotPlain, quoted

# Each of them asks for more than this.
OTHERS = ("DATABASE_URL", "STORE_URL", "SIGNING_KEY_FILE", "TLS_CA", "INSECURE_SKIP_VERIFY")
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
KEY_PREFIX = "fgk_"
# What `forge up` writes, and the project's file that may name a server.
CONNECTION, PROJECT = "connection.json", "forge.toml"
OWNER_HEADER = "X-Forge-Owner"
# Between two looks at a quiet job, in seconds. On Lambda every request costs money.
SLOWEST_S, SLOWEST_UP_S = 2.0, 0.5


class ServerPlace:
    """A server and who asks it.

    Args:
        url: the server's, without a trailing slash.
        headers: say who asks.
        owner: whose jobs are one's own; None is the key's owner.
        slowest_s: the longest pause between two looks at a quiet job.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], owner: str | None, slowest_s: float = SLOWEST_S
    ) -> None:
        self.url, self.headers, self.owner, self.slowest_s = url, headers, owner, slowest_s


def server_place() -> ServerPlace:
    """Return the server that the variables name, or else that of a `forge up`.

    Raises:
        NotPlain: it takes more to find it, or to reach it.
    """
    if any(os.environ.get(f"FORGE_{name}") for name in OTHERS):
        raise NotPlain("a variable has more to say")
    with suppress(FileNotFoundError), open(PROJECT, "rb") as project:
        if b"connection" in project.read():
            raise NotPlain("the project may name a server")
    owner, url = os.environ.get("FORGE_OWNER"), os.environ.get("FORGE_URL")
    if not url:
        return of_up(os.environ.get("FORGE_DIR"), owner or login_name())
    return named(url, _key_for(url), owner)


def _key_for(url: str) -> str:
    """Return the key that the variables say, or else the one of `forge login`."""
    key, file = (os.environ.get(f"FORGE_API_KEY{more}") for more in ("", "_FILE"))
    if key and file:
        raise NotPlain("there are two keys")
    if key:
        return key
    with open(file or f"{state_folder()}/logins/{quoted(url.rstrip('/'))}", "rb") as kept:
        return kept.read().decode("latin-1")


def login_name() -> str:
    """Return the user's login name, or one made from the user id if the system knows none."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if login := os.environ.get(name):
            return login
    import pwd  # noqa: PLC0415 - there is none on Windows, which has USERNAME

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def named(url: str, key: str, owner: str | None = None) -> ServerPlace:
    """Return a server that is reached with nothing but an API key, maybe of an admin for an owner.

    Raises:
        NotPlain: the URL or the key is no such, or there is a proxy.
    """
    url, key = url.rstrip("/"), key.strip()
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    odd = any(char in rest for char in "@?#") or not rest.isascii() or not rest.isprintable()
    if scheme not in {"http", "https"} or not host or odd or " " in rest:
        raise NotPlain("the URL")
    if not (key.startswith(KEY_PREFIX) and key.isascii() and key.isprintable()):
        raise NotPlain("the key")
    refuse_proxied(host)
    return ServerPlace(url, {"Authorization": f"Bearer {key}"}, owner)


def refuse_proxied(host: str) -> None:
    """Refuse a host that may be behind a proxy; this machine is not.

    Raises:
        NotPlain: there is a proxy.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name not in LOOPBACK and PROXIES & {variable.lower() for variable in os.environ}:
        raise NotPlain("a proxy")


def of_up(folder: str | None, owner: str) -> ServerPlace:
    """Return the server of the `forge up` of a folder; without a folder, of the latest.

    Raises:
        NotPlain: there is none, or it has no token for its user, or which one has to be said.
    """
    connection = _read(os.path.join(folder or _latest(), CONNECTION))
    token, url = connection.get("token"), connection.get("url")
    if not (token and url and owner.isascii() and owner.isprintable()):
        raise NotPlain("this `forge up` has no such server")
    headers = {"Authorization": f"Bearer {token}", OWNER_HEADER: owner}
    return ServerPlace(url, headers, owner, SLOWEST_UP_S)


def state_folder() -> str:
    """Return where `forge_client.default_paths` has this user's state; platformdirs is slow.

    Raises:
        NotPlain: this is not Linux.
    """
    if sys.platform != "linux":
        raise NotPlain("the folders of this platform")
    folder = os.environ.get("XDG_STATE_HOME", "")
    home = folder if folder.strip() else os.path.expanduser("~/.local/state")
    return f"{home}/forge"


def _latest() -> str:
    """Return the folder of the latest `forge up`, if nothing has to be said about it."""
    state = state_folder()
    latest = _read(f"{state}/up")
    if "dir" not in latest or "before" in latest or len(os.listdir(f"{state}/ups")) > 1:
        raise NotPlain("which `forge up` it is has to be said")
    return str(latest["dir"])


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise NotPlain(f"{path} cannot be read") from error
    if not isinstance(content, dict):
        raise NotPlain(f"{path} is something else")
    return content

"""Where the container engine is, found once and the same for every part of a worker.

The docker command and docker-py follow DOCKER_HOST, else the Docker context in use, which the
installer of a rootless engine sets. A later `docker context use` moves no worker that runs.
"""

from __future__ import annotations

import os
import socket
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker import DockerClient
from docker.context import ContextAPI
from docker.context.config import get_current_context_name
from docker.utils import kwargs_from_env

if TYPE_CHECKING:
    from docker.tls import TLSConfig

DEFAULT_HOST = "unix:///var/run/docker.sock"
PING_TIMEOUT_S = 3
# What decides where it is.
NAMES = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "HOME",
)
CREDENTIALS = struct.Struct("iII")


class ContextUnusable(ConnectionError):
    """The Docker context in use leads to no engine; another engine would be the wrong one."""


def address() -> str:
    """Return the engine's address, such as `unix:///run/user/1000/docker.sock`.

    Raises:
        ContextUnusable: a Docker context is in use that cannot be read.
    """
    return _place()[0]


def connected(**options: Any) -> DockerClient:  # noqa: ANN401  those of docker-py
    """Return a client of the engine.

    Raises:
        DockerException: the engine does not answer, unless a `version` is given.
    """
    host, tls = _place()
    return DockerClient(base_url=host, tls=tls or False, **options)


def socket_path() -> Path | None:
    """Return the engine's socket; None if it is reached otherwise."""
    scheme, _, path = address().rpartition("://")
    return Path(path) if scheme in {"unix", "http+unix", ""} else None


def knock() -> None:
    """Check that the engine's socket accepts connections; docker-py leaks a socket if not.

    Raises:
        OSError: it does not.
    """
    if (path := socket_path()) is not None:
        with _opened(path):
            return


def listener() -> int:
    """Return the process that listens on the engine's socket; 0 if it is not visible.

    Raises:
        OSError: nobody does.
    """
    found = _credentials()
    return 0 if found is None else found[0]


def listener_user() -> int | None:
    """Return the user whose process listens on the engine's socket; None if it is not visible.

    Raises:
        OSError: nobody does.
    """
    found = _credentials()
    return None if found is None else found[1]


def _credentials() -> tuple[int, int, int] | None:
    if (path := socket_path()) is None:
        return None
    with _opened(path) as door:
        said = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(said)
    return pid, uid, gid


def _opened(path: Path) -> socket.socket:
    door = socket.socket(socket.AF_UNIX)
    try:
        door.settimeout(PING_TIMEOUT_S)
        door.connect(str(path))
    except OSError:
        door.close()
        raise
    return door


def _place() -> tuple[str, TLSConfig | None]:
    return _found(tuple(os.environ.get(name, "") for name in NAMES))


@cache
def _found(_said: tuple[str, ...]) -> tuple[str, TLSConfig | None]:
    told: dict[str, Any] = {**kwargs_from_env()}
    if "base_url" not in told:
        told = {**_of_context(), **told}
    return told.get("base_url") or DEFAULT_HOST, told.get("tls")


def _of_context() -> dict[str, Any]:
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    try:
        told: dict[str, Any] = {**ContextAPI.kwargs_from_context(name)}
    except Exception as error:  # docker-py raises plain ones
        raise ContextUnusable(f"the Docker context {name} cannot be read: {error}") from error
    if not told and name != "default":
        raise ContextUnusable(f"the Docker context {name}, which is in use, does not exist")
    return told

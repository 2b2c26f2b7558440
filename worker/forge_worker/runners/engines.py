"""The container engine: its kind, and where it is, found once for every part of a worker.

The docker command and docker-py follow DOCKER_HOST, else the Docker context in use, which the
installer of a rootless engine sets. A later `docker context use` moves no worker that runs.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from docker import DockerClient
from docker.context import ContextAPI
from docker.context.config import get_current_context_name
from docker.errors import TLSParameterError
from docker.utils import kwargs_from_env

from forge_worker.runners.runner import StartFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.tls import TLSConfig

UNLIMITED = "on control groups v1, a rootless engine limits neither memory nor CPUs of jobs"

log = structlog.get_logger(__name__)

PODMAN = "Podman"
# Podman looks there, and its answers to Docker's requests do not say so.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# The first that was seen to; 5.1 did not.
PODMAN_ASSIGNS = [5, 4]
CONTAINERD = "io.containerd.snapshotter.v1"

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


def check_fit(kind: EngineKind) -> None:
    """Check that the jobs' folders would be theirs in a container; log which limits are missing.

    Raises:
        StartFailed: they would not.
        OSError: the engine is not there.
    """
    if not kind.limits:
        _warn(str(kind))
    if kind.rootless and (user := listener_user()) not in {None, os.geteuid()}:
        raise StartFailed(
            f"{kind} is of the user {user}, whose containers cannot have folders of this worker",
            hint=f"start the worker as the user {user}, or name another engine (DOCKER_HOST)",
        )


@cache
def _warn(engine: str) -> None:
    """Log it once for each engine."""
    log.warning("limits_not_enforced", engine=engine, note=UNLIMITED)


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine: `rootless` means that its root is the user that runs it, and no other user.

    `remaps` is whether all ids in its containers are others outside; `limits` whether it can limit
    memory and CPUs. Devices are described in the folders `cdi`. It stores images in `containerd`,
    or by itself.
    """

    name: str = "Docker"
    version: str = ""
    rootless: bool = False
    remaps: bool = False
    limits: bool = True
    containerd: bool = False
    cdi: tuple[Path, ...] = ()

    @property
    def podman(self) -> bool:
        return self.name == PODMAN

    @property
    def separates(self) -> bool:
        """Whether the containers of one network can be kept from each other."""
        return not self.podman

    @property
    def confines_builds(self) -> bool:
        """Whether a build has the network that it is asked for: Podman 5.8 gives the machine's."""
        return not self.podman

    @property
    def outlived(self) -> bool:
        """Whether containers run on when the engine stops."""
        return self.podman

    @property
    def assigns(self) -> bool:
        """Whether the engine heeds Docker's requests for devices: older Podmans ignore them."""
        parts = [int(part) for part in self.version.split(".")[:2] if part.isdecimal()]
        return not self.podman or parts >= PODMAN_ASSIGNS

    def __str__(self) -> str:
        """Return it for people."""
        return f"{'rootless ' if self.rootless else ''}{self.name} {self.version}".rstrip()


def kind_of(info: Mapping[str, Any]) -> EngineKind:
    """Return what an engine is, by its system information."""
    # Podman answers Docker's requests; what it says of its builder is its own.
    podman = "BuildahVersion" in info
    security = [str(word).partition(",")[0] for word in info.get("SecurityOptions") or []]
    folders = info.get("CDISpecDirs") or (CDI_FOLDERS if podman else ())
    rootless = "name=rootless" in security or bool(info.get("Rootless"))
    return EngineKind(
        name=PODMAN if podman else "Docker",
        version=str(info.get("ServerVersion") or ""),
        rootless=rootless,
        remaps="name=userns" in security,
        # It says that it can, and then leaves limits out.
        limits=not (rootless and info.get("CgroupVersion") == "1"),
        containerd=any(CONTAINERD in row for row in info.get("DriverStatus") or []),
        cdi=tuple(Path(folder) for folder in folders),
    )


class EngineUnusable(ConnectionError):
    """What names the engine leads to none; another engine would be the wrong one."""


def address() -> str:
    """Return the engine's address, such as `unix:///run/user/1000/docker.sock`.

    Raises:
        EngineUnusable: the Docker context in use or the TLS files cannot be read.
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
    credentials = _credentials()
    return 0 if credentials is None else credentials[0]


def listener_user() -> int | None:
    """Return the user whose process listens on the engine's socket; None if it is not visible.

    Raises:
        OSError: nobody does.
    """
    credentials = _credentials()
    return None if credentials is None else credentials[1]


def _credentials() -> tuple[int, int, int] | None:
    if (path := socket_path()) is None:
        return None
    with _opened(path) as door:
        credentials = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(credentials)
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
    return _of_variables(tuple(os.environ.get(name, "") for name in NAMES))


@cache
def _of_variables(_values: tuple[str, ...]) -> tuple[str, TLSConfig | None]:
    try:
        options: dict[str, Any] = {**kwargs_from_env()}
    except TLSParameterError as error:
        folder = os.environ.get("DOCKER_CERT_PATH") or "~/.docker"
        raise EngineUnusable(
            f"{folder} has not all of ca.pem, cert.pem and key.pem, which TLS to the engine takes"
        ) from error
    if "base_url" not in options:
        options = {**_of_context(), **options}
    return options.get("base_url") or DEFAULT_HOST, options.get("tls")


def _of_context() -> dict[str, Any]:
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    try:
        options: dict[str, Any] = {**ContextAPI.kwargs_from_context(name)}
    except Exception as error:  # docker-py raises plain ones
        raise EngineUnusable(f"the Docker context {name} cannot be read: {error}") from error
    if not options and name != "default":
        raise EngineUnusable(f"the Docker context {name}, which is in use, does not exist")
    return options

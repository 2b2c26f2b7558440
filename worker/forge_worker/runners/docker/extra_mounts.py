"""The operator's folders for every job: `/here:/there`, `/here:/there:rw`."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from forge_schema.model.errors import ForgeError

from forge_worker.runners.docker.engine import DEFAULT_HOST
from forge_worker.runners.runner import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable

SOCKETS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
# What the job's own folders, the kernel's views and the container's start need as they are.
TAKEN = ("/forge", "/proc", "/sys", "/dev", "/tmp")  # noqa: S108  the container's
MODES = {"": False, "ro": False, "rw": True}


class MountRefused(ForgeError):
    """A folder that is to be mounted into every job cannot be."""

    code = "mount_refused"


def extra_mounts(words: Iterable[str], worker_dir: Path) -> tuple[Mount, ...]:
    """Return the mounts that the settings ask for.

    Raises:
        MountRefused: one is malformed, or would open the machine to every job.
    """
    mounts: list[Mount] = []
    for word in words:
        mount = _mount(word)
        _check_source(word, mount.source, worker_dir)
        _check_target(word, mount.target)
        if any(mount.target == other.target for other in mounts):
            raise _refused(word, f"{mount.target} is taken by another of them")
        mounts.append(mount)
    return tuple(mounts)


def _mount(word: str) -> Mount:
    here, _, rest = word.partition(":")
    there, _, mode = rest.partition(":")
    places = (PurePosixPath(here), PurePosixPath(there))
    if mode not in MODES or not all(p.is_absolute() and ".." not in p.parts for p in places):
        raise _refused(word, "it does not read /here:/there or /here:/there:rw")
    # Of a link, what it leads to now is mounted and was checked.
    return Mount(Path(here).resolve(), places[1], writable=MODES[mode])


def _check_source(word: str, here: Path, worker_dir: Path) -> None:
    if not here.is_dir():
        raise _refused(word, f"there is no folder {here} on this machine")
    for socket in _sockets():
        if socket.is_relative_to(here):
            raise _refused(word, "it holds the socket of a container engine, which is root's power")
    if worker_dir.resolve().is_relative_to(here):
        raise _refused(word, "it holds this worker's own folder, with everybody's code")


def _sockets() -> list[Path]:
    scheme, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    return [Path(place).resolve() for place in (*SOCKETS, *([path] if scheme == "unix" else []))]


def _check_target(word: str, there: PurePosixPath) -> None:
    if there == PurePosixPath("/"):
        raise _refused(word, "no folder takes the place of a job's root")
    for taken in map(PurePosixPath, TAKEN):
        if there.is_relative_to(taken):
            raise _refused(word, f"{taken} is not to be mounted over")


def _refused(word: str, why: str) -> MountRefused:
    return MountRefused(
        f"the extra mount {word!r} cannot be: {why}",
        hint="write --extra-mounts /data/sets:/data,/scratch:/scratch:rw",
    )

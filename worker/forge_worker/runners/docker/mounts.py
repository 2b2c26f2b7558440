"""Mounts of a container: the operator's folders for every job, and the job's secrets file.

An engine shows a container's variables to all its users, so they never contain secrets. The job's
shell reads them from a file and empties it; the file is removed from the host once the container
has started.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from forge_schema.model.errors import ForgeError

from forge_worker.runners.engines import socket_path
from forge_worker.runners.runner import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOCKETS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
# Needed for the job's own folders, kernel file systems and the container's start.
TAKEN = ("/forge", "/proc", "/sys", "/dev", "/tmp")  # noqa: S108  the container's
MODES = {"": False, "ro": False, "rw": True}
SECRETS = PurePosixPath("/forge/secrets")
TAKE = f". {SECRETS}; : >{SECRETS}; "


class MountRefused(ForgeError):
    """An extra mount is malformed or unsafe."""

    code = "mount_refused"


def extra_mounts(words: Iterable[str], worker_dir: Path) -> tuple[Mount, ...]:
    """Return the mounts in the settings.

    Raises:
        MountRefused: a mount is malformed, or would expose the machine to every job.
    """
    mounts: list[Mount] = []
    for word in words:
        mount = _mount(word)
        _check_source(word, mount.source, worker_dir)
        _check_target(word, mount.target)
        if any(mount.target == other.target for other in mounts):
            raise _refused(word, f"{mount.target} is already the target of another mount")
        mounts.append(mount)
    return tuple(mounts)


def _mount(word: str) -> Mount:
    here, _, rest = word.partition(":")
    there, _, mode = rest.partition(":")
    places = (PurePosixPath(here), PurePosixPath(there))
    if mode not in MODES or not all(p.is_absolute() and ".." not in p.parts for p in places):
        raise _refused(word, "it does not have the form /here:/there or /here:/there:rw")
    # A link is resolved now, so that what was checked is what is mounted.
    return Mount(Path(here).resolve(), places[1], writable=MODES[mode])


def _check_source(word: str, here: Path, worker_dir: Path) -> None:
    if not here.is_dir():
        raise _refused(word, f"there is no folder {here} on this machine")
    for socket in _sockets():
        if socket.is_relative_to(here):
            raise _refused(
                word, "it contains the socket of a container engine, which gives root access"
            )
    if worker_dir.resolve().is_relative_to(here):
        raise _refused(word, "it contains this worker's own folder, with the code of all users")


def _sockets() -> list[Path]:
    sockets = [Path(place) for place in SOCKETS]
    with suppress(OSError):
        sockets += filter(None, [socket_path()])
    return [socket.resolve() for socket in sockets]


def _check_target(word: str, there: PurePosixPath) -> None:
    if there == PurePosixPath("/"):
        raise _refused(word, "the root of a container cannot be replaced")
    for taken in map(PurePosixPath, TAKEN):
        if there.is_relative_to(taken):
            raise _refused(word, f"{taken} must not be mounted over")


def _refused(word: str, why: str) -> MountRefused:
    return MountRefused(
        f"the extra mount {word!r} is refused: {why}",
        hint="write --extra-mounts /data/sets:/data,/scratch:/scratch:rw",
    )


@contextmanager
def handed_over(spec: RunSpec, uid: int, gid: int) -> Iterator[RunSpec]:
    """Yield the spec with its secrets in a file of the job's user, removed after the block.

    Raises:
        OSError: the file cannot be written.
    """
    if not spec.secrets:
        yield spec
        return
    path = spec.log_path.absolute().with_name(f"{spec.log_path.name}.secrets")
    path.unlink(missing_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            os.fchown(file, uid, gid)
            stream.writelines(f"export {n}={shlex.quote(v)}\n" for n, v in spec.secrets.items())
        yield replace(spec, mounts=(*spec.mounts, Mount(path, SECRETS, writable=True)))
    finally:
        path.unlink(missing_ok=True)

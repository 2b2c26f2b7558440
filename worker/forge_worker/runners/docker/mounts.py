"""Mounts of a container: the operator's folders, the job's secrets file, and its user's name.

An engine shows a container's variables to all its users, so they never contain secrets. The job's
shell reads them from a file and empties it; the file is removed from the host once the container
has started.

Most images do not know the name of a job's user, for which programs ask: `getpass.getuser()`,
`whoami`, ssh, and PyTorch's compiler for its cache. The image's own lists get one line more, in
files of this machine that are mounted over them.
"""

from __future__ import annotations

import io
import os
import shlex
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from docker.errors import APIError, NotFound
from forge_schema.model.errors import ForgeError

from forge_worker.runners.engines import socket_path
from forge_worker.runners.runner import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from docker import APIClient

SOCKETS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
# Needed for the job's own folders, kernel file systems and the container's start.
TAKEN = ("/forge", "/proc", "/sys", "/dev", "/tmp")  # noqa: S108  the container's
MODES = {"": False, "ro": False, "rw": True}
SECRETS = PurePosixPath("/forge/secrets")
TAKE = f". {SECRETS}; : >{SECRETS}; "

NAME = "forge"
PASSWD, GROUP = PurePosixPath("/etc/passwd"), PurePosixPath("/etc/group")
ROOT = {PASSWD: "root:x:0:0:root:/root:/bin/sh\n", GROUP: "root:x:0:\n"}
# A list that is longer than this is no list of users.
LONGEST = 1 << 20


class MountRefused(ForgeError):
    """An extra mount is malformed or unsafe."""


def extra_mounts(words: Iterable[str], worker_dir: Path) -> tuple[Mount, ...]:
    """Return the mounts in the settings.

    Raises:
        MountRefused: a mount is malformed, or would expose the machine to every job.
    """
    mounts: list[Mount] = []
    for word in words:
        mount = _mount(word)
        if fault := folder_fault(mount.source, worker_dir):
            raise _refused(word, fault)
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


def folder_fault(here: Path, worker_dir: Path) -> str:
    """Return why jobs must not have a folder of this machine; empty if they may."""
    if not here.is_dir():
        return f"there is no folder {here} on this machine"
    if any(socket.is_relative_to(here) for socket in _sockets()):
        return "it contains the socket of a container engine, which gives root access"
    if worker_dir.resolve().is_relative_to(here):
        return "it contains this worker's own folder, with the code of all users"
    return ""


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


@dataclass(frozen=True, slots=True)
class Accounts:
    """The lists of an image with the job's user, as far as they lacked it; `name` is the user's."""

    name: str
    lists: Mapping[PurePosixPath, str]

    @contextmanager
    def shown(self, spec: RunSpec, taken: Iterable[PurePosixPath]) -> Iterator[RunSpec]:
        """Yield the spec with the lists mounted, unless a mount of the operator is in the way.

        Their files are removed after the block: a container that runs keeps them.

        Raises:
            OSError: they cannot be written.
        """
        lists = dict(self.lists)
        if any(place.is_relative_to(target) for target in taken for place in lists):
            lists = {}
        log = spec.log_path.absolute()
        files = {place: log.with_name(f"{log.name}.{place.name}") for place in lists}
        try:
            for place, file in files.items():
                file.write_text(lists[place], encoding="utf-8", errors="surrogateescape")
                file.chmod(0o644)
            mounts = (Mount(file, place) for place, file in files.items())
            yield replace(spec, mounts=(*spec.mounts, *mounts))
        finally:
            for file in files.values():
                file.unlink(missing_ok=True)


def accounts_of(api: APIClient, container: str, uid: int, gid: int, home: str) -> Accounts:
    """Return the accounts for a user, by the lists in a container that need not run.

    An image whose lists cannot be read keeps them as they are.
    """
    try:
        passwd, group = (_list(api, container, place) for place in (PASSWD, GROUP))
    except APIError:
        return Accounts(NAME, {})
    users = _entries(passwd)
    known = next((entry[0] for entry in users if entry[2] == str(uid)), None)
    lists = {}
    name = known or _free(NAME, {entry[0] for entry in users}, uid)
    if known is None:
        lists[PASSWD] = f"{_ended(passwd)}{name}:x:{uid}:{gid}:job:{home}:/bin/sh\n"
    groups = _entries(group)
    if all(entry[2] != str(gid) for entry in groups):
        of_group = _free(NAME, {entry[0] for entry in groups}, gid)
        lists[GROUP] = f"{_ended(group)}{of_group}:x:{gid}:\n"
    return Accounts(name, lists)


def _list(api: APIClient, container: str, place: PurePosixPath) -> str:
    """Return a list in a container's image; the least that there can be if it has none."""
    with suppress(NotFound, tarfile.TarError, KeyError):
        # Follows no link, and then finds no file.
        pieces, _ = api.get_archive(container, str(place))
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
            if (file := tar.extractfile(place.name)) is not None:
                text = file.read(LONGEST).decode(errors="surrogateescape")
                return text or ROOT[place]
    return ROOT[place]


def _entries(text: str) -> list[list[str]]:
    """Return the fields of each line: both lists have a name first and a number third."""
    lines = (line.split(":") for line in text.splitlines())
    return [fields for fields in lines if len(fields) > 2]  # noqa: PLR2004  the number's place


def _free(name: str, taken: set[str], number: int) -> str:
    return f"{name}{number}" if name in taken else name


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"

"""A name for the user of a job in a container, which most images do not know.

Programs ask for it: `getpass.getuser()`, `whoami`, ssh, and PyTorch's compiler for its cache. The
image's own lists get one line more, in files of this machine that are mounted over them.
"""

from __future__ import annotations

import io
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from docker.errors import APIError, NotFound

from forge_worker.runners.runner import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from docker import APIClient

    from forge_worker.runners.runner import RunSpec

NAME = "forge"
PASSWD, GROUP = PurePosixPath("/etc/passwd"), PurePosixPath("/etc/group")
ROOT = {PASSWD: "root:x:0:0:root:/root:/bin/sh\n", GROUP: "root:x:0:\n"}
# A list that is longer than this is no list of users.
LONGEST = 1 << 20


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
            if (found := tar.extractfile(place.name)) is not None:
                text = found.read(LONGEST).decode(errors="surrogateescape")
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

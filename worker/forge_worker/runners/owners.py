"""The users that jobs run as where the worker is root, and what of its folder is theirs."""

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forge_schema.model.errors import ForgeError

from forge_worker.files import safe_files
from forge_worker.files.placing import give_in_order
from forge_worker.runners.runner import Mount, RunSpec

ENTERED_BY_ALL = stat.S_IXGRP | stat.S_IXOTH


class UserUnusable(ForgeError):
    """Jobs cannot run as the user that the operator named."""


@dataclass(frozen=True, slots=True)
class JobUser:
    """Another user than the worker's, for jobs that run as processes; `root` is its folder."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    root: Path

    def let_in(self, spec: RunSpec) -> None:
        """Make the job's folders its user's, and let it through to what it reads.

        Raises:
            OSError: a folder is missing.
        """
        give_job(spec, self.uid, self.gid)
        give_mounted(spec.mounts, self.uid, self.gid)
        read = (*spec.bin_dirs, *spec.python_dirs, *(mount.source for mount in spec.mounts))
        for place in map(Path, (*spec.folders, *read)):
            self._open_way(place)

    def _open_way(self, place: Path) -> None:
        """Let everybody enter, but not list, the worker's folders above a place."""
        for folder in place.parents:
            if folder.is_relative_to(self.root):
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) | ENTERED_BY_ALL)


def job_user(name: str, root: Path) -> JobUser | None:
    """Return the user with a name or a number, None without one; `root` is the worker's folder.

    Raises:
        UserUnusable: there is no such user, or jobs cannot run as it here.
    """
    if not name:
        return None
    if os.geteuid() != 0:
        raise UserUnusable(
            f"only a worker that is root can run jobs as {name} (--process-user)",
            hint="start it as root, or leave the option out: jobs then run as the worker's user",
        )
    root = root.resolve()
    user = _user(name, root)
    if user.uid == 0:
        raise UserUnusable(
            "jobs that run as root would have all rights of the worker (--process-user)",
            hint="name another user, as 65532, or leave the option out",
        )
    for folder in root.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise UserUnusable(
                f"jobs that run as {name} (--process-user) cannot enter {folder}",
                hint="with --worker-dir, name a folder that everybody can reach, as in /var/lib",
            )
    return user


def _user(name: str, root: Path) -> JobUser:
    if name.isdecimal():
        return JobUser(int(name), int(name), (), root)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserUnusable(
            f"this machine has no user {name} (--process-user)",
            hint="create it with `useradd --system`, or give a number, as 65532",
        ) from None
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return JobUser(entry.pw_uid, entry.pw_gid, groups, root)


def give_mounted(mounts: Iterable[Mount], uid: int, gid: int) -> None:
    """Make `uid` the owner of the job's own mounted folders, but not of their contents."""
    if os.geteuid() == 0:
        for mount in mounts:
            if mount.given:
                safe_files.give_alone(mount.source, uid, gid)


def give_job(spec: RunSpec, uid: int, gid: int) -> None:
    """Make `uid` the owner of a job's folders, before it starts; as `give`.

    What was restored changes in the order of its times.
    """
    give((*spec.folders, *filter(None, [spec.tmp_dir])), uid, gid)
    if os.geteuid() == 0:
        give_in_order(spec.checkpoint_dir, uid, gid)


def give(folders: Iterable[Path], uid: int, gid: int) -> None:
    """Make `uid` the owner of folders and their contents; does nothing unless root.

    Raises:
        OSError: a folder does not exist.
    """
    if os.geteuid() != 0:
        return
    for folder in folders:
        safe_files.give(folder, uid, gid)

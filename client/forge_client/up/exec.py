"""Run commands inside a running job on this machine, found by its worker's labels."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

import psutil

from forge_client.errors import ClientError

MARK = "forge-shim"
LIST_S = 30.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
# An interactive shell needs to know the terminal; jobs do not have one.
TERMINAL = ("TERM", "COLORTERM")


class Inside(Protocol):
    """A running job on this machine."""

    def enter(self, command: Sequence[str]) -> NoReturn:
        """Replace this process by a command inside the job, keeping its terminal or pipes.

        Raises:
            ClientError: the command cannot be run.
        """


@dataclass(frozen=True)
class Container:
    """A job in a container, entered with the docker command."""

    id: str

    def enter(self, command: Sequence[str]) -> NoReturn:
        """Run the command as the job's user, in its folder, with its variables but no secrets."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        known = [name for name in TERMINAL if terminal and name in os.environ]
        options = ["-i", *(["-t"] if terminal else []), *(f"--env={name}" for name in known)]
        become(["docker", "exec", *options, self.id, *command], dict(os.environ))


@dataclass(frozen=True)
class Process:
    """A job that runs as a process of this machine."""

    pid: int
    uid: int
    gid: int
    folder: Path
    env: dict[str, str] = field(repr=False)

    def enter(self, command: Sequence[str]) -> NoReturn:
        """Run the command as the job's user, in its folder, with all its variables."""
        if os.geteuid() == 0 and self.uid != 0:
            os.setgroups([])
            os.setgid(self.gid)
            os.setuid(self.uid)
        os.chdir(self.folder)
        known = {name: os.environ[name] for name in TERMINAL if name in os.environ}
        become(command, {**known, **self.env})


def find(worker: str, job_id: int, attempt: int) -> Inside | None:
    """Return an attempt that runs on this machine; None if it does not.

    Raises:
        ClientError: it runs here, but this user has no access to it.
    """
    labels = {"forge.worker": worker, "forge.job": str(job_id), "forge.attempt": str(attempt)}
    words = {f"{name}={value}" for name, value in labels.items()}
    return _process(words) or _container(words)


def become(command: Sequence[str], env: dict[str, str]) -> NoReturn:
    """Replace this process by a command, which takes over its terminal, signals and exit code.

    Raises:
        ClientError: the command does not exist or cannot be run.
    """
    program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    sys.stdout.flush()
    try:
        os.execvpe(program or command[0], list(command), env)  # noqa: S606 - no shell is the point
    except FileNotFoundError as error:
        raise _unrunnable(command[0], "not found", NOT_FOUND) from error
    except OSError as error:
        raise _unrunnable(command[0], str(error.strerror), NOT_EXECUTABLE) from error


def _container(labels: set[str]) -> Container | None:
    if shutil.which("docker") is None:
        return None
    filters = [word for label in sorted(labels) for word in ("--filter", f"label={label}")]
    listed = subprocess.run(  # noqa: S603 - fixed words; labels have no spaces
        ["docker", "ps", "--no-trunc", "--quiet", *filters],  # noqa: S607 - from the user's PATH
        capture_output=True,
        text=True,
        timeout=LIST_S,
        check=False,
    )
    found = listed.stdout.split()
    return Container(found[0]) if found else None


def _process(labels: set[str]) -> Process | None:
    for shim in psutil.process_iter(["cmdline"]):
        words = shim.info["cmdline"] or []
        if MARK in words[:8] and labels <= set(words):
            try:
                return next((_entered(child) for child in shim.children() if _leads(child)), None)
            except psutil.AccessDenied as error:
                raise ClientError(
                    "the job runs here as another user, and only that user may enter it",
                    hint=f"run this as {shim.username()}, or as root",
                    code="not_allowed",
                ) from error
            except psutil.NoSuchProcess:
                return None
    return None


def _leads(child: psutil.Process) -> bool:
    """Tell the job's main process from leftovers of the job: it leads its session."""
    return os.getsid(child.pid) == child.pid


def _entered(job: psutil.Process) -> Process:
    uids, gids = job.uids(), job.gids()
    return Process(job.pid, uids.real, gids.real, Path(job.cwd()), job.environ())


def _unrunnable(name: str, why: str, code: int) -> ClientError:
    return ClientError(
        f"{name}: {why}", hint="check that it is installed there", code="not_run", exit_code=code
    )

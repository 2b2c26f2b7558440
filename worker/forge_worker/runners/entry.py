"""Ways into a running job on this machine, found by its labels."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from docker.errors import DockerException
from forge_schema.model.errors import ForgeError

from forge_worker.runners.docker.engine import UNREACHABLE
from forge_worker.runners.engines import address, connected, knock, socket_path
from forge_worker.runners.process.shims import MARK

LIST_S = 30
# Marks a command and all that it starts, in a container too.
SESSION = "FORGE_SHELL"
# Neither variables nor the folder change what it imports.
ALONE = ("-I", "-S", "-c")


class NotEntered(ForgeError):
    """The job runs here, but this user has no access to it."""

    code = "not_allowed"


@dataclass(frozen=True)
class Program:
    """A program of this machine that is a command inside a job; `uid` and `gid` are the job's."""

    command: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    folder: Path | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True)
class Container:
    """A job in a container, entered with the command docker, or podman where there is no other."""

    id: str
    python = ("python3", *ALONE)

    def program(self, command: Sequence[str], given: Mapping[str, str], *, tty: bool) -> Program:
        """Return the command as the job's user, in its folder, with its variables but no secrets.

        `given` are variables to add, and `tty` is whether it has a terminal.

        Raises:
            NotEntered: neither command is here.
        """
        options = ["-i", *(["-t"] if tty else []), *(f"--env={name}" for name in given)]
        own = {name: it for name, it in os.environ.items() if not name.startswith("FORGE_")}
        return Program((*_program(), "exec", *options, self.id, *command), {**own, **given})


@dataclass(frozen=True)
class JobProcess:
    """A job that runs as a process of this machine, below its shim; `main` has no command here."""

    main: Program
    shim: int
    python = (sys.executable, *ALONE)

    def program(self, command: Sequence[str], given: Mapping[str, str], *, tty: bool) -> Program:  # noqa: ARG002  it takes what it gets
        """Return the command as the job's user, in its folder, with all its variables."""
        return replace(self.main, command=tuple(command), env={**given, **self.main.env})


Entry = Container | JobProcess


def find(labels: Mapping[str, str]) -> Entry | None:
    """Return the job with these labels if it runs on this machine.

    Raises:
        NotEntered: it runs here, but this user has no access to it.
    """
    words = {f"{name}={value}" for name, value in labels.items()}
    return _process(words) or _container(words)


def _container(labels: set[str]) -> Container | None:
    with suppress(DockerException, *UNREACHABLE, OSError):
        knock()
        with closing(connected(timeout=LIST_S)) as client:
            containers = client.api.containers(filters={"label": sorted(labels)})
        return Container(containers[0]["Id"]) if containers else None
    return None


def _program() -> tuple[str, ...]:
    if shutil.which("docker"):
        # A context may hold more than an address, and the command follows it too.
        return ("docker", "--host", address()) if socket_path() else ("docker",)
    if shutil.which("podman"):
        return "podman", "--url", address()
    raise NotEntered(
        "the job runs in a container here, and neither docker nor podman is there to enter it",
        hint="install one of these commands on that machine (Debian: docker-cli, or podman)",
    )


def _process(labels: set[str]) -> JobProcess | None:
    for shim in psutil.process_iter(["cmdline"]):
        words = shim.info["cmdline"] or []
        if MARK in words[:8] and labels <= set(words):
            try:
                below = filter(_leads, shim.children())
                return next((_entered(child, shim.pid) for child in below), None)
            except psutil.AccessDenied as error:
                raise NotEntered(
                    "the job runs here as another user, and only that user may enter it",
                    hint=f"run this as {shim.username()}, or as root",
                ) from error
            except psutil.NoSuchProcess:
                return None
    return None


def _leads(child: psutil.Process) -> bool:
    """Tell the job's main process from leftovers of the job: it leads its session."""
    return os.getsid(child.pid) == child.pid


def _entered(job: psutil.Process, shim: int) -> JobProcess:
    uids, gids = job.uids(), job.gids()
    folder, env = Path(job.cwd()), job.environ()
    return JobProcess(Program((), env, folder, uids.real, gids.real), shim)

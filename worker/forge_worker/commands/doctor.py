"""Check what this machine lacks for running jobs with its settings, and how to fix it."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from forge_worker.runners.docker.engine import DEFAULT_HOST, engine_answers, knock
from forge_worker.runners.docker.network import EXPOSED_HINT, not_blockable
from forge_worker.runners.process.confinement import WANTED, parents
from forge_worker.runners.process.shims import base_environment
from forge_worker.settings.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that is missing, its consequence, and how to fix it."""

    what: str
    so: str
    do: str

    def reported(self) -> dict[str, str]:
        return asdict(self)


def lacking(settings: WorkerSettings) -> list[Lack]:
    """Return what is missing here, worst first."""
    found = [*_of_containers(settings), *_of_processes(settings)]
    return sorted(found, key=lambda lack: not lack.so.startswith("no jobs"))


def _of_containers(settings: WorkerSettings) -> Iterator[Lack]:
    if settings.runner == "process":
        return
    if (why := _engine_fault()) is not None:
        what, do = why
        other = settings.runner == "auto" and settings.allow_processes
        yield Lack(what, f"no jobs in containers{', only as processes' if other else ''}", do)
    elif settings.network == "bridge" and (exposed := not_blockable()):
        so = "jobs in containers can take this machine's credentials from the cloud's metadata"
        yield Lack(
            f"the block of metadata addresses: {exposed}",
            so if settings.allow_metadata or settings.allow_processes else "no jobs in containers",
            EXPOSED_HINT,
        )


def _engine_fault() -> tuple[str, str] | None:
    place = os.environ.get("DOCKER_HOST", DEFAULT_HOST)
    try:
        knock()
    except FileNotFoundError:
        return f"there is no container engine at {place}", "install Docker and start it"
    except PermissionError:
        return (
            f"this user may not use the container engine at {place}",
            "add the user to the group docker, and log in again",
        )
    except OSError as error:
        said = error.strerror or str(error)
        return f"the container engine at {place} does not answer: {said}", "start Docker"
    if not engine_answers():
        return (
            f"the engine at {place} is not a Docker engine for Linux, or is too old",
            "install Docker 20.10 or newer",
        )
    return None


def _of_processes(settings: WorkerSettings) -> Iterator[Lack]:
    if settings.runner == "docker":
        return
    if not settings.allow_processes:
        if settings.runner == "process":
            yield Lack(
                "processes are not allowed",
                "no jobs at all, because of --runner process",
                "set --allow-processes if every job is trusted",
            )
        return
    if shutil.which("python", path=base_environment()["PATH"]) is None:
        yield Lack(
            "jobs find no command `python`",
            "jobs that call it end with exit code 127",
            "install Python, or the package python-is-python3",
        )
    if missing := [kind for kind in WANTED if kind not in parents()]:
        yield Lack(
            f"control groups for {', '.join(missing)} cannot be created here",
            "limits of process jobs are only polled, and jobs are bound to CPUs",
            "run the worker as root, or see docs/worker-settings.md",
        )

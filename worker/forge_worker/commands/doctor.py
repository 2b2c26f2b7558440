"""Check what this machine lacks for running jobs with its settings, and how to fix it."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from forge_worker.files.rest import in_memory
from forge_worker.runners.docker.container import FAILED
from forge_worker.runners.docker.engine import Engine, engine_answers
from forge_worker.runners.docker.network import EXPOSED_HINT, not_blockable
from forge_worker.runners.engines import EngineUnusable, address, knock, socket_path
from forge_worker.runners.process.confinement import WANTED, parents
from forge_worker.runners.process.shims import base_environment
from forge_worker.settings.settings import WorkerSettings

EXAMPLE = "DOCKER_HOST=unix:///run/podman/podman.sock"


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
    lacks = [*_of_containers(settings), *_of_processes(settings), *_of_folder(settings)]
    return sorted(lacks, key=lambda lack: not lack.so.startswith("no jobs"))


def _of_folder(settings: WorkerSettings) -> Iterator[Lack]:
    folder = settings.worker_dir
    # A look at a worker that never started makes no folder.
    if not folder.exists():
        return
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        yield Lack(
            f"the worker's folder {folder} is mounted noexec",
            "programs and compiled packages of jobs there do not run: Permission denied",
            "choose a folder elsewhere with --worker-dir (FORGE_WORKER_DIR), or mount it with exec",
        )
    if in_memory(folder.stat().st_dev):
        yield Lack(
            f"the worker's folder {folder} is in memory, not on a disk",
            "files of a job count as its memory: one that fills its disk may end as oom",
            "choose a folder on a disk with --worker-dir (FORGE_WORKER_DIR)",
        )


def _of_containers(settings: WorkerSettings) -> Iterator[Lack]:
    if not settings.uses_engine:
        return
    if (why := _engine_fault()) is not None:
        what, do = why
        other = settings.uses_processes
        yield Lack(what, f"no jobs in containers{', only as processes' if other else ''}", do)
    elif settings.network == "bridge" and (exposed := not_blockable()):
        so = "jobs in containers can take this machine's credentials from the cloud's metadata"
        yield Lack(
            f"the block of metadata addresses: {exposed}",
            so if settings.allow_metadata or settings.allow_processes else "no jobs in containers",
            EXPOSED_HINT,
        )


def engine_found() -> tuple[str, str, str]:
    """Return what the engine is and where, or "", what is wrong with it, and what to do."""
    if (fault := _engine_fault()) is not None:
        return "", *fault
    try:
        return f"{Engine().kind} at {address()}", "", ""
    except FAILED as error:
        return "", f"the container engine at {address()} does not answer: {error}", "restart it"


def _engine_fault() -> tuple[str, str] | None:
    try:
        place = address()
        knock()
    except EngineUnusable as error:
        return str(error), "see `docker context use`, DOCKER_HOST and DOCKER_CERT_PATH"
    except FileNotFoundError:
        return (
            f"there is no container engine at {place}",
            f"install Docker and start it; or name another engine's socket: {EXAMPLE}",
        )
    except PermissionError:
        return (
            f"this user may not use the container engine at {place}",
            f"add the user to the group of {socket_path()}, as docker, and log in again",
        )
    except OSError as error:
        reason = error.strerror or str(error)
        return f"the container engine at {place} does not answer: {reason}", "start it"
    if not engine_answers():
        return (
            f"the engine at {place} does not answer, runs no Linux containers, or is too old",
            "check its address; it takes Docker 20.10 or newer, or Podman 4 or newer",
        )
    return None


def _of_processes(settings: WorkerSettings) -> Iterator[Lack]:
    if not settings.uses_processes:
        if not settings.uses_engine:
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
            f"{'mount them writable' if os.geteuid() == 0 else 'run the worker as root'},"
            " or see docs/worker-settings.md",
        )

"""One container that small jobs share: it waits in a shell, and each job is executed into it.

The shell reads a pipe whose only writer is the agent, so the container ends with its agent.
"""

from __future__ import annotations

import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from docker.types import Mount

from forge_worker.runners import hardening
from forge_worker.runners.container import remove_container

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from docker.types import DeviceRequest

    from forge_worker.runners.engine import Engine
    from forge_worker.runners.hardening import DockerPolicy
    from forge_worker.runners.runner import RunSpec

SHARE_LABEL = "forge.share"
JOBS = PurePosixPath("/forge/jobs")
OWN_PLACES = {hardening.WORK, hardening.OUTPUT, hardening.CHECKPOINT, hardening.CONTROL}
OWN_PLACES |= {hardening.PIPE}
SHELL = ("/bin/sh", "-c")
# Builtins only: an image needs no more than the shell. Opened for reading alone, the pipe ends
# when the agent does.
IDLE = 'read -r _ <"$1"'
# The shell becomes the job, so that its number is the job's.
BEGIN = (
    'j=$1; echo $$ >"$2/.pid"; shift 2; '
    'if [ -s "$j/secrets" ]; then . "$j/secrets"; : >"$j/secrets"; fi; '
    'exec "$@" 1<>"$j/out" 2>&1 </dev/null'
)
SIGNAL = 'read -r p <"$2/.pid" && kill "-$1" "$p"'
# What is there beside the init, the shell that waits and this one; and how often memory ran out.
LOOK = (
    "for p in /proc/[0-9]*; do echo process ${p#/proc/}; done; "
    "for f in /tmp/* /tmp/.[!.]* /dev/shm/* /dev/shm/.[!.]*; do "
    '[ -e "$f" -o -L "$f" ] && echo file; done; '
    "for f in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do "
    '[ -r "$f" ] && while read -r name count; do echo "$name $count"; done <"$f"; done; echo end'
)
OWN_PROCESSES = 3
TMP = "tmp"


@dataclass(frozen=True)
class Opening:
    """What a job's container would be created with, had it one of its own."""

    image: str
    arguments: Mapping[str, Any]
    user: str


@dataclass(frozen=True)
class Found:
    """What a look into a container found; `clean` is whether it is as it was before.

    `whole` is False when not all was seen, or what belongs there was not: it may be ending.
    """

    clean: bool
    oom: bool
    whole: bool


def arguments_of(
    spec: RunSpec,
    policy: DockerPolicy,
    *,
    image: str,
    config: Mapping[str, Any],
    user: str,
    pipe: Path,
    host_cpus: float,
    devices: Sequence[DeviceRequest],
) -> Opening:
    """Return the hardened settings, from which the container and the job each take their part."""
    said = hardening.settings(
        spec, policy, user=user, pipe=pipe, image=config, host_cpus=host_cpus, devices=devices
    )
    return Opening(image, said, user)


class SharedContainer:
    """Known by its name; jobs with the same `key` may run in it."""

    def __init__(self, engine: Engine, key: Hashable, share: Path | None) -> None:
        self.name = f"forge-share-{secrets.token_hex(8)}"
        self.key = key
        self._engine = engine
        self._wait = (share or Path()).absolute() / f".{self.name}"
        self._writer: int | None = None

    def create(self, opening: Opening, labels: Mapping[str, str]) -> None:
        """Create the container and start it; it waits.

        Raises:
            OSError: the pipe cannot be made.
            EngineUnreachable, or an error of the client's: the engine would not start it.
        """
        os.mkfifo(self._wait, 0o600)
        os.chmod(self._wait, 0o444)  # noqa: PTH101  whatever the umask says
        # For reading too, or it would wait for the reader.
        self._writer = os.open(self._wait, os.O_RDWR | os.O_CLOEXEC)
        said = opening.arguments
        created = {
            **said,
            "name": self.name,
            "hostname": self.name[: hardening.HOSTNAME_LENGTH],
            "labels": dict(labels),
            "entrypoint": [*SHELL, IDLE, "sh"],
            "command": [str(JOBS / self._wait.name)],
            # Each job brings its own; these only say which GPUs the container may not have.
            "environment": {
                name: value
                for name, value in said["environment"].items()
                if name.endswith("_VISIBLE_DEVICES")
            },
            "working_dir": "/",
            "mounts": [
                Mount(target=str(JOBS), source=str(self._wait.parent), type="bind"),
                *(mount for mount in said["mounts"] if mount["Target"] not in OWN_PLACES),
            ],
        }
        self._engine.client.containers.create(opening.image, **created).start()

    def begin(
        self, opening: Opening, place: PurePosixPath, spec: RunSpec, user: tuple[int, int]
    ) -> SharedJob:
        """Start a job in its place and return it.

        Raises:
            OSError: its secrets cannot be written.
            EngineUnreachable, or an error of the client's: the engine would not start it.
        """
        _hand_over(spec, *user)
        said = opening.arguments
        work, control = place / spec.work_dir.name, place / spec.control_dir.name
        (spec.control_dir / TMP).mkdir(exist_ok=True)
        os.chown(spec.control_dir / TMP, *user)
        # What a job leaves in /tmp would be there for the next one.
        env = {"TMPDIR": str(control / TMP), **said["environment"], "HOME": str(work)}
        created = self._engine.client.api.exec_create(
            self.name,
            [*SHELL, BEGIN, "sh", str(place), str(control), *said["command"]],
            environment=env,
            workdir=str(work),
            user=opening.user,
        )
        job = SharedJob(created["Id"], control)
        self._engine.client.api.exec_start(job.id, detach=True)
        return job

    def state(self, job: SharedJob) -> dict[str, Any]:
        """Return what the engine knows of a job.

        Raises:
            NotFound: it has forgotten it, and with it the container.
        """
        found: dict[str, Any] = self._engine.client.api.exec_inspect(job.id)
        return found

    def signal(self, job: SharedJob, name: str) -> None:
        """Send a signal to a job's main process; one that is gone is fine."""
        self._say([*SHELL, SIGNAL, "sh", name, str(job.control)])

    def look(self) -> Found:
        """Find out whether anything of a job is left.

        Raises:
            EngineUnreachable, or an error of the client's: nobody can tell.
        """
        lines = self._say([*SHELL, LOOK]).decode(errors="replace").splitlines()
        processes = sum(line.startswith("process ") for line in lines)
        # One that is ending lets nothing be executed, and then the engine's complaint is all.
        whole = lines[-1:] == ["end"] and processes >= OWN_PROCESSES
        oom = any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)
        clean = whole and processes == OWN_PROCESSES and "file" not in lines and not oom
        return Found(clean, oom, whole)

    def running(self) -> bool:
        """Tell whether the engine holds that the container runs.

        Raises:
            EngineUnreachable, or an error of the client's: nobody can tell.
        """
        found = self._engine.client.api.inspect_container(self.name)
        return bool(found["State"]["Running"])

    def ended_for_memory(self) -> bool:
        """Tell whether the engine says that the container's memory ran out."""
        found = self._engine.client.api.inspect_container(self.name)
        return bool(found["State"]["OOMKilled"])

    def remove(self) -> None:
        """End the container with all that runs in it, and remove it. May be repeated.

        Raises:
            EngineUnreachable: it may still be there.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            os.close(writer)
        self._wait.unlink(missing_ok=True)
        remove_container(self._engine, self.name)

    def _say(self, words: list[str]) -> bytes:
        api = self._engine.client.api
        said: bytes = api.exec_start(api.exec_create(self.name, words)["Id"])
        return said


@dataclass(frozen=True)
class SharedJob:
    """A job in a container: the engine's name for it, and where its own number is told."""

    id: str
    control: PurePosixPath


def _hand_over(spec: RunSpec, uid: int, gid: int) -> None:
    """Write the job's secrets where its shell reads and then empties them: no engine knows them."""
    path = spec.work_dir.parent / "secrets"
    path.unlink(missing_ok=True)
    if not spec.secrets:
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        os.fchown(file, uid, gid)
        stream.writelines(f"export {n}={shlex.quote(v)}\n" for n, v in spec.secrets.items())

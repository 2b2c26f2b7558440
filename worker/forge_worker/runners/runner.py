"""What every runner does, and the words for it: a job in, an exit out, nothing left behind.

The exit code means the same in all of them: the main process's own code, 128 + n when signal n
ended it, 127 when its command was not found and 126 when it could not be executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from forge_schema.model.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path, PurePath, PurePosixPath

    from forge_worker.runners.use import JobUse

# AMD's runtime hides first, by UUID; its layers above count what is left, from 0.
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
# For people; what is whose, the ids say: of the worker's folder, and of the queue.
WORKER_LABEL = "forge.worker"
FOLDER_LABEL = "forge.folder"
QUEUE_LABEL = "forge.queue"
OWNERS = (WORKER_LABEL, FOLDER_LABEL, QUEUE_LABEL)


def visible(uuids: Sequence[str], vendor: str) -> dict[str, str]:
    """Return the variables for a job that has these GPUs; with none, it sees none."""
    if not uuids:
        return dict(HIDDEN)
    if vendor == "amd":
        numbers = ",".join(str(number) for number in range(len(uuids)))
        return {"ROCR_VISIBLE_DEVICES": ",".join(uuids), "HIP_VISIBLE_DEVICES": numbers}
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if vendor == "nvidia" else {}


@dataclass(frozen=True)
class Mount:
    """A folder of the host for a job; `target` is where a container has it.

    One that is `given` becomes the job's user's own, but not what is in it already.
    """

    source: Path
    target: PurePosixPath
    writable: bool = False
    given: bool = False


@dataclass(frozen=True)
class RunSpec:
    """One attempt at one job.

    The four folders are the host's, and exist; the job may write to all of them. `log_path`
    receives stdout and stderr as bytes, in the order in which they were written. `memory_mb` is
    in MiB; `grace_s` is the time from SIGTERM to SIGKILL, in seconds. `secrets` are variables too,
    but stand in nothing that an engine or a process list shows. `bin_dirs` come first on the job's
    PATH and `python_dirs` last on its PYTHONPATH, under the names by which the job reaches them.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: Path
    output_dir: Path
    checkpoint_dir: Path
    control_dir: Path
    log_path: Path
    image: str | None
    cpus: float
    memory_mb: int
    gpu_uuids: tuple[str, ...]
    grace_s: float
    labels: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    bin_dirs: tuple[PurePath, ...] = ()
    python_dirs: tuple[PurePath, ...] = ()
    gpu_vendor: str = "nvidia"

    @property
    def folders(self) -> tuple[Path, Path, Path, Path]:
        """The host folders that the job may write to."""
        return (self.work_dir, self.output_dir, self.checkpoint_dir, self.control_dir)


@dataclass(frozen=True)
class Exit:
    """What ended a job, as its runner saw it; `code` is None when nobody can know."""

    code: int | None
    oom_killed: bool = False
    detail: str = ""


@dataclass(frozen=True)
class JobPaths:
    """The folders of a RunSpec under the names by which the job itself reaches them."""

    work_dir: PurePath
    output_dir: PurePath
    checkpoint_dir: PurePath
    control_dir: PurePath


@dataclass(frozen=True)
class Leftover:
    """A job that outlived the agent which started it; `id` is the runner's own.

    `places` are the folders of this machine that it has, as far as the runner knows them.
    """

    id: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()


Own = Callable[[Leftover], bool]


def nobodys(_: Leftover) -> bool:
    """Say that what carries no folder's id is not this worker's."""
    return False


def belongs(left: Leftover, folder: str, own: Own) -> bool:
    """Tell whether a leftover is of the worker with this folder; `own` as in `Runner`."""
    carried = left.labels.get(FOLDER_LABEL)
    return own(left) if carried is None else carried == folder


class Handle(Protocol):
    """One started job. Every method may be called from any thread."""

    def wait(self, timeout: float) -> Exit | None:
        """Return the exit within `timeout` seconds, or None: still running.

        Once there is an exit, the log is whole and no process of the job is left.
        """

    def signal(self, signum: int) -> None:
        """Send a signal to the job's main process; one that is gone is fine."""

    def stop(self) -> None:
        """Send SIGTERM to the main process, SIGKILL to all after the grace; return when gone."""

    def used(self) -> JobUse | None:
        """Return what the job has used until now, or None when nobody can tell any more."""

    def remove(self) -> None:
        """Leave nothing behind, neither a process nor a container. May be repeated."""


class Runner(Protocol):
    """A way to run jobs."""

    kind: ClassVar[str]

    def paths(self, spec: RunSpec) -> JobPaths:
        """Return the folders as the job sees them."""

    def place(self, mount: Mount) -> PurePath:
        """Return where the job finds a mounted folder."""

    def foundation(self, spec: RunSpec) -> str:
        """Return what the job's Python is: what is built on one foundation may break on another.

        Raises:
            ImageMissing: as `start`.
            StartFailed: it cannot be found out now.
        """

    def start(self, spec: RunSpec) -> Handle:
        """Start the job.

        Raises:
            ImageMissing: its image is neither here nor to be had.
            StartFailed: this machine could not start it.
        """

    def leftovers(self, folder: str, own: Own = nobodys) -> list[Leftover]:
        """Return what another agent process started and left, by the id of its folder.

        Whoever calls holds that folder's lock. `own` tells what is this worker's of what an agent
        of an earlier version started, which labelled it with no folder.
        """

    def adopt(self, leftover: Leftover, log_path: Path, grace_s: float) -> Handle | None:
        """Go on with a leftover that runs, or has ended meanwhile; None if that cannot be."""

    def reap(self, leftover: Leftover) -> None:
        """End a leftover at once, without grace, and remove it."""


class ImageMissing(ForgeError):
    """The image is not on this machine and could not be fetched."""

    code = "image_missing"


class StartFailed(ForgeError):
    """The machine could not start the job; nothing of the user's ran."""

    code = "start_failed"


class PullFailed(StartFailed):
    """The image could not be fetched, which says nothing of the machine itself."""


class EngineUnreachable(ForgeError):
    """The container engine does not answer."""

    code = "engine_unreachable"

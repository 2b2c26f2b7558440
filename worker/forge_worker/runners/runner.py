"""The interface of all runners, and its types.

The exit code is the same in all of them: the main process's own code, 128 + n if signal n ended it,
127 if its command was not found and 126 if it could not be executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from signal import SIGKILL
from typing import TYPE_CHECKING, ClassVar, Protocol

from forge_schema.model.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path, PurePath, PurePosixPath

    from forge_worker.runners.process.descendants import JobUse

# AMD's runtime filters by UUID first; the layers above it number the rest from 0.
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
# For people only; ownership is decided by the ids of the worker's folder and the queue.
WORKER_LABEL = "forge.worker"
FOLDER_LABEL = "forge.folder"
QUEUE_LABEL = "forge.queue"
# The exit code of a main process that a signal ended is this and the signal's number.
SIGNAL_BASE = 128
# What kills everything on a machine needs less than this for it, in seconds.
TOGETHER_S = 5.0
OWNERS = (WORKER_LABEL, FOLDER_LABEL, QUEUE_LABEL)


def visible(uuids: Sequence[str], vendor: str) -> dict[str, str]:
    """Return the variables that make only these GPUs visible to a job; without any, none."""
    if not uuids:
        return dict(HIDDEN)
    if vendor == "amd":
        numbers = ",".join(str(number) for number in range(len(uuids)))
        return {"ROCR_VISIBLE_DEVICES": ",".join(uuids), "HIP_VISIBLE_DEVICES": numbers}
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if vendor == "nvidia" else {}


@dataclass(frozen=True)
class Mount:
    """A folder of the host for a job; `target` is its path in a container.

    If `given`, the job's user becomes the owner of the folder, but not of its contents.
    """

    source: Path
    target: PurePosixPath
    writable: bool = False
    given: bool = False


@dataclass(frozen=True)
class RunSpec:
    """One attempt at one job.

    The four folders exist on the host, and the job may write to all of them. `log_path` receives
    stdout and stderr as bytes, in the order in which they were written. `memory_mb` is in MiB;
    `grace_s` is the time from SIGTERM to SIGKILL, in seconds. `secrets` are variables that neither
    the engine nor a process list shows. `bin_dirs` come first on the job's PATH and `python_dirs`
    last on its PYTHONPATH, as paths in the job. A member of a gang has the machine's network
    (`host_network`), or its container `publishes` a port at an address of the machine, the same
    inside and outside. `tmp_dir` is for temporary files, where the job has no /tmp of its own.
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
    host_network: bool = False
    publishes: tuple[str, int] | None = None
    tmp_dir: Path | None = None

    @property
    def folders(self) -> tuple[Path, Path, Path, Path]:
        """The host folders that the job may write to."""
        return (self.work_dir, self.output_dir, self.checkpoint_dir, self.control_dir)


@dataclass(frozen=True)
class Exit:
    """How a job ended, as seen by its runner; `code` is None if it is unknown.

    `at_ns` is when its main process ended, since the epoch, or 0 if that is unknown. The code is
    `void` if others than the agent stopped the job: it tells only whether it was killed.
    """

    code: int | None
    oom_killed: bool = False
    detail: str = ""
    at_ns: int = field(default=0, compare=False)
    void: int | None = field(default=None, compare=False)


def unwatched(exited: Exit, alone_s: float) -> Exit:
    """Return how a job ended that no agent saw end, `alone_s` seconds after its last one was gone.

    What kills a job together with its agent is no fault of the job. A job that is killed later,
    while its worker has no agent, may have been killed for a reason of its own.
    """
    if exited.code == SIGNAL_BASE + SIGKILL and not exited.oom_killed and alone_s <= TOGETHER_S:
        detail = "the job was killed together with the agent of its worker"
        return replace(exited, code=None, detail=detail)
    return exited


@dataclass(frozen=True)
class JobPaths:
    """The folders of a RunSpec as paths in the job."""

    work_dir: PurePath
    output_dir: PurePath
    checkpoint_dir: PurePath
    control_dir: PurePath


@dataclass(frozen=True)
class Leftover:
    """A job that outlived the agent that started it; `id` is the runner's own.

    `places` are its folders on this machine, as far as the runner knows them.
    """

    id: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()


def belongs(left: Leftover, folder: str) -> bool:
    """Return whether a leftover belongs to the worker with this folder, by the folder's id."""
    return left.labels.get(FOLDER_LABEL) == folder


class Handle(Protocol):
    """One started job. Thread-safe."""

    @property
    def remembers(self) -> bool:
        """Whether `used` still tells the job's whole use after its end."""

    def wait(self, timeout: float, wake: int | None = None) -> Exit | None:
        """Return the exit, or None if the job still runs after `timeout` seconds.

        It returns sooner if the descriptor `wake` can be read from. Once there is an exit, the log
        is complete and no process of the job is left.
        """

    def signal(self, signum: int, notice_s: float = 0.0) -> None:
        """Have the job stop: signal its main process, and once that has ended, the rest of it.

        The caller kills with SIGKILL what still runs after `notice_s` seconds. SIGKILL ends the
        whole job at once.
        """

    def catches(self, signum: int) -> bool | None:
        """Return whether a process of the job has a handler for a signal; None if none is seen."""

    def stop(self) -> None:
        """Signal with SIGTERM, and kill what runs after the grace; wait for the end."""

    def used(self) -> JobUse | None:
        """Return what the job has used so far, or None if that is no longer known."""

    def remove(self) -> None:
        """Remove all processes and containers of the job. May be repeated."""


class Runner(Protocol):
    """A way to run jobs.

    Jobs `on_host` have the worker's own Python and see the machine's files.
    """

    kind: ClassVar[str]
    on_host: ClassVar[bool]

    def paths(self, spec: RunSpec) -> JobPaths:
        """Return the folders as the job sees them."""

    def place(self, mount: Mount) -> PurePath:
        """Return the path of a mounted folder in the job."""

    def foundation(self, spec: RunSpec) -> str:
        """Return the identity of the job's Python; environments are valid for one foundation only.

        Raises:
            ImageMissing: as `start`.
            StartFailed: it cannot be determined now.
        """

    def start(self, spec: RunSpec) -> Handle:
        """Start the job.

        Raises:
            ImageMissing: its image is not here and cannot be fetched.
            StartFailed: this machine could not start it.
        """

    def leftovers(self, folder: str) -> list[Leftover]:
        """Return the jobs that an earlier agent of this folder left, by the folder's id.

        The caller must hold the folder's lock.
        """

    def adopt(self, leftover: Leftover, log_path: Path, grace_s: float) -> Handle | None:
        """Take over a leftover that runs, or has ended meanwhile; None if that is impossible."""

    def reap(self, leftover: Leftover) -> None:
        """End a leftover at once, without grace, and remove it."""


class ImageMissing(ForgeError):
    """The image is not on this machine, and cannot be fetched."""


class StartFailed(ForgeError):
    """The machine could not start the job; no code of the user ran."""


class PullFailed(StartFailed):
    """The image could not be fetched, which is not the machine's fault."""

    code = StartFailed.code


class EngineUnreachable(ForgeError):
    """The container engine does not answer."""

"""The accelerators of this machine: GPUs and MIG slices, who uses them, and what tells of them."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

import structlog
from forge_schema.model import worker

from forge_worker.privacy import without_credentials

PATIENCE_S = 20.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GpuDevice(worker.Gpu):
    """One GPU, identified by its UUID; its memory is 0 MiB if unknown.

    `number` is the driver's index of the whole GPU. A slice's `parent` is the UUID of its GPU.
    """

    number: int = field(default=0, compare=False)

    @property
    def kind(self) -> tuple[str, int]:
        """Name and memory, which all GPUs of a job share."""
        return self.name, self.vram_mb

    def reported(self) -> dict[str, Any]:
        """Return the GPU as the queue stores it."""
        fields = asdict(self)
        del fields["number"]
        return fields


@dataclass(frozen=True, slots=True)
class Use:
    """Current use of a GPU: compute processes, and the memory taken by other processes.

    `gone` means that the GPU stopped answering.
    """

    computing: frozenset[int] = frozenset()
    taken_mb: int = 0
    gone: bool = False


class GpuSource(Protocol):
    """One driver or program; it finds no GPUs if it is not available."""

    accelerator: ClassVar[str]
    """The kind of device jobs compute on here: cuda, rocm or mps."""
    fresh_s: ClassVar[float]
    """How long an answer about use may be cached, in seconds."""
    complete: ClassVar[bool]
    """Whether a GPU missing from an answer about use is gone, rather than unknown."""

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs that can be assigned, in the driver's order."""

    def use(self) -> Mapping[str, Use] | None:
        """Return the use of each GPU by UUID, without unknown ones; None if all are unknown."""


def asked(name: str, *arguments: str) -> str | None:
    """Return what a program on PATH printed, or None if it gave no answer."""
    program = shutil.which(name)
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603  a program of the machine's own, and no shell
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=without_credentials(),
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.info("program_failed", program=program, error=str(error))
        return None
    return done.stdout

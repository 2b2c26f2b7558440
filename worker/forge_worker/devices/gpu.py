"""A GPU or a MIG slice of one, and the processes that use it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from forge_schema.model import worker


@dataclass(frozen=True, slots=True)
class Gpu(worker.Gpu):
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
        told = asdict(self)
        del told["number"]
        return told


@dataclass(frozen=True, slots=True)
class Use:
    """Current use of a GPU: compute processes, and the memory taken by other processes.

    `gone` means that the GPU stopped answering.
    """

    computing: frozenset[int] = frozenset()
    taken_mb: int = 0
    gone: bool = False

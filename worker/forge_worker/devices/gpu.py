"""A GPU or a MIG slice of one, and the processes that use it."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, identified by its UUID; memory in MiB, 0 if unknown.

    `number` is the driver's index of the whole GPU. A slice's `parent` is the UUID of its GPU.
    """

    uuid: str
    name: str
    vram_mb: int
    vendor: str = "nvidia"
    capability: str = ""
    driver: str = ""
    parent: str | None = None
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

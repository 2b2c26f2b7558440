"""A GPU, or a slice of one, and who uses it."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, by the UUID under which it is assigned; memory in MiB, 0 where it cannot be read.

    `number` is the driver's, of the whole GPU also for a slice, whose `parent` names that.
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
        """What the GPUs of one job have in common: name and memory."""
        return self.name, self.vram_mb

    def reported(self) -> dict[str, Any]:
        """Return it as the queue keeps it."""
        told = asdict(self)
        del told["number"]
        return told


@dataclass(frozen=True, slots=True)
class Use:
    """Who uses a GPU now: the processes that compute on it, and what others took of its memory.

    `gone` means that it was there, and answers no more.
    """

    computing: frozenset[int] = frozenset()
    taken_mb: int = 0
    gone: bool = False

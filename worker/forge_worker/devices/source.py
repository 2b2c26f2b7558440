"""A source of information about one vendor's GPUs."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from forge_worker.devices.gpu import Gpu, Use


class Source(Protocol):
    """One driver or program; it finds no GPUs if it is not available."""

    accelerator: ClassVar[str]
    """The kind of device jobs compute on here: cuda, rocm or mps."""
    fresh_s: ClassVar[float]
    """How long an answer about use may be cached, in seconds."""
    complete: ClassVar[bool]
    """Whether a GPU missing from an answer about use is gone, rather than unknown."""

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that can be assigned, in the driver's order."""

    def use(self) -> Mapping[str, Use] | None:
        """Return the use of each GPU by UUID, without unknown ones; None if all are unknown."""

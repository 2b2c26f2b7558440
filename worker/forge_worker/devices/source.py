"""A source: whoever can say which GPUs of one vendor there are."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from forge_worker.devices.gpu import Gpu, Use


class Source(Protocol):
    """One driver or program; it answers with nothing where it cannot be asked."""

    accelerator: ClassVar[str]
    """The word for what jobs compute on here: cuda, rocm or mps."""
    fresh_s: ClassVar[float]
    """For how long an answer about use is good, in seconds: some take long to ask."""
    complete: ClassVar[bool]
    """Whether a GPU that an answer about use leaves out is gone, and not just unknown."""

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that can be assigned, in the driver's order."""

    def use(self) -> Mapping[str, Use] | None:
        """Return who uses which GPU, by UUID; one that cannot say is left out, None: none can."""

"""What a worker has for jobs."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from forge_schema.model.fields import NUMERIC, Count, Note, Number
from forge_schema.model.known_fields import KnownParts

MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class Capacity(KnownParts):
    """What a worker has free now, or what a job needs; memory and disk in MiB.

    The GPUs are all of one kind: `gpu_model` is its name, or for a job the glob that it wants, and
    `vram_mb` what each of them has free. Who names no kind is taken to have any. `gpus_in_all`
    counts those of the kind that may yet come free; without it, no job reserves GPUs here.
    """

    cpus: Annotated[Number, Field(ge=0, le=1e6)]
    memory_mb: Count
    disk_mb: Count
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS), NUMERIC] = 0
    gpu_model: Note = ""
    vram_mb: Count = 0
    gpus_in_all: Annotated[int, Field(ge=0, le=MOST_GPUS), NUMERIC] = 0

    def without(self, lent: "Capacity") -> "Capacity":
        """Return what is left once something has been lent; it may be less than nothing."""
        return replace(
            self,
            cpus=self.cpus - lent.cpus,
            memory_mb=self.memory_mb - lent.memory_mb,
            disk_mb=self.disk_mb - lent.disk_mb,
            gpus=self.gpus - lent.gpus,
        )

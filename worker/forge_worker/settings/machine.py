"""The worker's settings about its machine: what it lends of it, and when it takes no more."""

from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, NoDecode

Percent = Annotated[float, Field(gt=0, le=100)]


def words(value: object) -> object:
    """Take `a,b` for a list, as flags and variables write one."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]


class MachineSettings(BaseSettings):
    """What of the machine is lent to jobs; sizes in MiB, times in seconds."""

    profile: Literal["", "benchmark", "test", "light"] = Field(
        "", description="defaults for a kind of use, see below; what is set besides wins"
    )
    cpus: PositiveFloat = Field(
        default_factory=lambda: float(psutil.cpu_count() or 1),
        description="CPUs to lend",
        json_schema_extra={"default": "all"},
    )
    memory_mb: PositiveInt = Field(
        default_factory=lambda: max(256, (psutil.virtual_memory().total >> 20) - 512),
        description="memory to lend, MiB; never more than there is",
        json_schema_extra={"default": "all but 512"},
    )
    memory_reserve_mb: NonNegativeInt = Field(
        0, description="memory that must stay free on the machine for a new job to start, MiB"
    )
    disk_mb: PositiveInt = Field(102_400, description="disk to lend, MiB; never more than is free")
    disk_floor_mb: NonNegativeInt = Field(
        1024, description="disk that must stay free below --worker-dir for a new job to start, MiB"
    )
    gpus: Annotated[list[str], NoDecode, BeforeValidator(words)] = Field(
        default_factory=lambda: ["all"],
        description="GPUs to lend: all, none, or their UUIDs or numbers, by commas",
    )
    lock_dir: Annotated[Path | None, BeforeValidator(lambda said: said or None)] = Field(
        None,
        description="where workers of one machine say which GPUs they use; the same for all",
    )
    max_jobs: PositiveInt = Field(64, description="jobs at once, however small they are")
    max_cpu_percent: Percent | None = Field(
        None, description="use of all CPUs past which no new job is taken"
    )
    max_memory_percent: Percent | None = Field(
        None, description="use of the memory past which no new job is taken"
    )
    max_gpu_percent: Percent | None = Field(
        None,
        description="use of a lent GPU that no job of this worker has, past which none is taken",
    )
    cooldown_s: PositiveFloat = Field(
        60.0, description="seconds that all must be within the limits before jobs are taken again"
    )
    sample_s: PositiveFloat = Field(10.0, description="seconds between looks at what is used")

"""A worker, its free resources, and the matching of GPU models."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

from pydantic import FailFast, Field

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import (
    NUMERIC,
    Amount,
    Count,
    Flag,
    MessagePart,
    Note,
    Number,
    Open,
    Record,
    Text,
    Word,
)
from forge_schema.model.quantities import flops_text
from forge_schema.model.reading import INTEGER
from forge_schema.model.states import Command, WorkerKind, WorkerStatus

MOST_GPUS = 64
# The most parts of jobs that a worker reports to have.
WARM = 64
MAGIC = {"*": ".*", "?": "."}
DEVICES = ("cpu", "cuda", "rocm", "mps")


class WorkerInfo(Record):
    """A worker: its resources, and when it was last heard from; memory and disk in MiB.

    `condition` describes its machine up to two minutes before, and why it is `constrained`, if it
    is. `speed` has the fields of `Speed`, if the machine was measured. `address` is where the other
    machines of a gang reach it; if they could not, it takes no part in gangs until `gangs_after`.
    If it is suspected of failing jobs, `suspected_for` says why. Then it takes one at a time, the
    next one in `rests_s` seconds. It may keep room for a gang, the job `keeps_for`. `secrets` are
    the names of those that the caller may know, each with whose it is: `*` is all, `@nlp` a team.
    """

    id: int
    name: str
    kind: Open[WorkerKind]
    status: Open[WorkerStatus]
    command: Open[Command] | None
    accelerator: str
    gpus: list[dict[str, Any]]
    cpus: float
    memory_mb: int
    disk_mb: int
    labels: dict[str, str]
    version: str
    condition: dict[str, Any] = Field(default_factory=dict)
    speed: dict[str, Any] | None = None
    address: str | None = None
    gangs_after: datetime | None = None
    suspected_for: str | None = None
    rests_s: float | None = None
    keeps_for: int | None = None
    secrets: dict[str, list[str]] = Field(default_factory=dict)
    last_seen_at: datetime = Field(repr=False)
    silent_s: float
    silent: bool = False
    leases: int


@dataclass(frozen=True, slots=True)
class Gpu(MessagePart):
    """One GPU of a worker, or a slice of one; memory in MiB."""

    uuid: Word
    name: Word
    vram_mb: Count
    vendor: Word = "nvidia"
    capability: Note = ""
    driver: Note = ""
    parent: Word | None = None


Rates = Annotated[dict[Word, Annotated[Number, Field(ge=0, le=1e12)]], Field(max_length=20)]


@dataclass(frozen=True, slots=True)
class Speed(MessagePart):
    """How fast a machine is: GFLOPS of a matrix multiplication, by type of number.

    `cpu` is measured on all `cpus` CPUs at once, the others on a GPU alone, the slowest if there
    are several kinds. Results of two methods (`torch`, `numpy`, `python`) are not comparable.
    Memory is copied at `memory_gb_s`, and the worker's folder written to at `disk_mb_s`.
    """

    method: Word
    cpus: Count = 1
    cpu: Rates = field(default_factory=dict)
    cuda: Rates = field(default_factory=dict)
    rocm: Rates = field(default_factory=dict)
    mps: Rates = field(default_factory=dict)
    memory_gb_s: Amount | None = None
    disk_mb_s: Amount | None = None
    version: Count = 1

    def reported(self) -> dict[str, Any]:
        """Return what was measured, as the queue stores it."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {})}


def speed_text(speed: Mapping[str, Any] | None) -> str:
    """Return the fastest rate of each device in a stored `Speed`; "" without any."""
    rates = {device: (speed or {}).get(device) for device in DEVICES}
    return ", ".join(
        f"{device} {flops_text(max(flops.values()))}" for device, flops in rates.items() if flops
    )


@dataclass(frozen=True)
class Machine:
    """What a worker reports about itself; memory and disk in MiB, price per hour.

    `folder_id` tells a restart from another worker; without one, it is taken for a restart.
    `replace` is whether it may take the place of a live worker with its name. `address` is where
    the other machines of a gang reach it; without one, it takes no part in gangs.
    """

    boot_id: UUID
    cpus: Annotated[Number, Field(gt=0, le=1e6)]
    memory_mb: Annotated[int, Field(gt=0, le=INTEGER), NUMERIC]
    disk_mb: Count
    kind: WorkerKind = WorkerKind.PERSISTENT
    accelerator: Word = "cpu"
    # A message's defaults are these of pydantic's.
    gpus: Annotated[list[Gpu], FailFast(), Field(default=[], max_length=MOST_GPUS)] = field(
        default_factory=list
    )
    labels: Annotated[
        dict[Word, Annotated[Text, Field(max_length=2000)]], Field(default={}, max_length=1000)
    ] = field(default_factory=dict)
    local: Flag = False
    price_per_hour: Amount | None = None
    version: Note = ""
    folder_id: UUID | None = None
    replace: Flag = False
    speed: Speed | None = None
    address: Word | None = None


@dataclass(frozen=True, slots=True)
class Capacity(MessagePart):
    """The resources that a worker has free or that a job needs; memory and disk in MiB.

    All GPUs are of one kind: `gpu_model` is its name, or for a job a glob, and `vram_mb` the free
    memory of each. An empty model means any. `gpus_in_all` counts all GPUs of the kind, free or in
    use; without it, no job reserves GPUs here.
    """

    cpus: Annotated[Number, Field(ge=0, le=1e6)]
    memory_mb: Count
    disk_mb: Count
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS), NUMERIC] = 0
    gpu_model: Note = ""
    vram_mb: Count = 0
    gpus_in_all: Annotated[int, Field(ge=0, le=MOST_GPUS), NUMERIC] = 0

    def without(self, lent: "Capacity") -> "Capacity":
        """Return what is left after lending something; it may be negative."""
        return replace(
            self,
            cpus=self.cpus - lent.cpus,
            memory_mb=self.memory_mb - lent.memory_mb,
            disk_mb=self.disk_mb - lent.disk_mb,
            gpus=self.gpus - lent.gpus,
        )


@lru_cache(maxsize=1000)
def is_model(wanted: str, name: str) -> bool:
    """Tell whether a name matches one of some globs of * and ?, with | between them.

    Case and the vendor's name are ignored, as in the SQL function `forge_is_model`.
    """
    return any(_matches(glob, name) or _matches(f"* {glob}", name) for glob in wanted.split("|"))


def _matches(glob: str, name: str) -> bool:
    pattern = "".join(MAGIC.get(char) or re.escape(char) for char in glob.lower())
    return re.fullmatch(pattern, name.lower(), re.DOTALL) is not None


class NoSuchWorker(ForgeError):
    """There is no worker with this id or name."""

    code = "worker_not_found"


def no_such_worker(called: int | str) -> NoSuchWorker:
    """Return the error for a worker that does not exist."""
    return NoSuchWorker(f"there is no worker {called}", hint="`forge worker list` lists them")

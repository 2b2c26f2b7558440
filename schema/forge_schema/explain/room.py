"""What a worker has free: its row, less what its leases hold. The worker itself may know of more.

Whom else its machine serves, and how many jobs it takes at most, the queue is not told.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge_schema.database.pool import Row
from forge_schema.model.machine import Capacity
from forge_schema.model.worker import is_model

NOTHING: Row = {"leases": 0, "cpus": 0, "memory_mb": 0, "disk_mb": 0, "gpus": []}


@dataclass(frozen=True, slots=True)
class Kind:
    """GPUs of one name and size: how many there are, and how many are free."""

    name: str
    vram_mb: int
    in_all: int
    free: int

    def suits(self, model: str, vram_mb: int = 0) -> bool:
        """Tell whether they are of a model and big enough."""
        return self.vram_mb >= vram_mb and is_model(model, self.name)


@dataclass(frozen=True, slots=True)
class Room:
    """What is free beside GPUs, and its GPUs kind by kind."""

    rest: Capacity
    kinds: tuple[Kind, ...]
    leases: int

    def choices(self) -> list[Capacity]:
        """Return what the worker may claim into, as it does: for each kind of free GPU in turn."""
        return [
            replace(
                self.rest,
                gpus=kind.free,
                gpu_model=kind.name,
                vram_mb=kind.vram_mb,
                gpus_in_all=kind.in_all,
            )
            for kind in self.kinds
            if kind.free > 0
        ] or [self.rest]


def room(worker: Row, held: Row | None, busy: Collection[str]) -> Room:
    """Return a worker's room; `busy` are the UUIDs of all GPUs that any lease has."""
    held = held or NOTHING
    kinds = Counter((_name(gpu), _vram(gpu)) for gpu in worker["gpus"])
    free = Counter(
        (_name(gpu), _vram(gpu)) for gpu in worker["gpus"] if gpu.get("uuid") not in busy
    )
    for lease in held["gpus"]:
        if not lease["devices"]:
            _take(free, lease)
    return Room(
        Capacity(
            cpus=worker["cpus"] - held["cpus"],
            memory_mb=worker["memory_mb"] - held["memory_mb"],
            disk_mb=worker["disk_mb"] - held["disk_mb"],
        ),
        tuple(Kind(*kind, count, max(0, free[kind])) for kind, count in sorted(kinds.items())),
        held["leases"],
    )


def devices(held: Iterable[Row]) -> set[str]:
    """Return the GPUs that leases have, whoever's: workers of one machine share them."""
    return {uuid for row in held for lease in row["gpus"] for uuid in lease["devices"]}


def _take(free: Counter[tuple[str, int]], lease: Mapping[str, Any]) -> None:
    # Which ones they are is not told yet.
    suiting = [
        kind for kind in free if Kind(*kind, 0, 0).suits(lease["gpu_model"], lease["vram_mb"])
    ]
    if suiting:
        free[max(suiting, key=lambda kind: (free[kind], kind))] -= lease["gpus"]


def _name(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("name") or "")


def _vram(gpu: Mapping[str, Any]) -> int:
    return int(gpu.get("vram_mb") or 0)

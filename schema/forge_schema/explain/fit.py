"""Compare a job's requirements with one worker's free resources: its total less its leases.

A lease holds only disk once its job has ended, and the queue learns of that when the worker offers
the rest and finds no job. It does not know other users of the machine, or the worker's own limit on
jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from forge_schema.database.pool import Row
from forge_schema.explain.text import LABEL
from forge_schema.model.explanation import Requirement
from forge_schema.model.spec import GANG_NETWORK, MAX_PRICE, PREFERS_SPOT
from forge_schema.model.worker import Capacity, is_model

NOBODY: Row = {
    "cpus": 0,
    "memory_mb": 0,
    "disk_mb": 0,
    "accelerator": "",
    "local": False,
    "labels": {},
    "address": None,
    "price_per_hour": None,
    "fit": defaultdict(bool),
}
AMOUNTS = ("cpus", "memory_mb", "disk_mb")
NOTHING: Row = {"leases": 0, "cpus": 0, "memory_mb": 0, "disk_mb": 0, "gpus": []}


@dataclass(frozen=True, slots=True)
class GpuKind:
    """GPUs of one name and memory size: how many the worker has, and how many are free."""

    name: str
    vram_mb: int
    in_all: int
    free: int

    def suits(self, model: str, vram_mb: int = 0) -> bool:
        """Tell whether they match a model and have enough memory."""
        return self.vram_mb >= vram_mb and is_model(model, self.name)


@dataclass(frozen=True, slots=True)
class Room:
    """A worker's free resources: everything but GPUs in `rest`, and its GPUs by kind."""

    rest: Capacity
    kinds: tuple[GpuKind, ...]
    leases: int

    def choices(self) -> list[Capacity]:
        """Return the capacities that the worker claims for: one for each kind of free GPU."""
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


def room(worker: Row, leased: Row | None, busy: Collection[str]) -> Room:
    """Return a worker's free resources; `busy` has the UUIDs of all leased GPUs."""
    leased = leased or NOTHING
    kinds = Counter((_name(gpu), _vram_of(gpu)) for gpu in worker["gpus"])
    free = Counter(
        (_name(gpu), _vram_of(gpu)) for gpu in worker["gpus"] if gpu.get("uuid") not in busy
    )
    for lease in leased["gpus"]:
        if not lease["devices"]:
            _take(free, lease)
    return Room(
        Capacity(**{name: max(0, worker[name] - leased[name]) for name in AMOUNTS}),
        tuple(GpuKind(*kind, count, max(0, free[kind])) for kind, count in sorted(kinds.items())),
        leased["leases"],
    )


def offered(known: Room, offers: Iterable[Row]) -> Room:
    """Return what a worker has free: by its leases or by its last offers, whichever is more."""
    rest, kinds = known.rest, known.kinds
    for offer in offers:
        rest = replace(rest, **{name: max(getattr(rest, name), offer[name]) for name in AMOUNTS})
        kinds = tuple(
            replace(kind, free=max(kind.free, min(kind.in_all, offer["gpus"])))
            if kind.name == offer["gpu_model"] and kind.vram_mb >= offer["vram_mb"]
            else kind
            for kind in kinds
        )
    return replace(known, rest=rest, kinds=kinds)


def devices(leased: Iterable[Row]) -> set[str]:
    """Return the GPUs of all leases, since workers on one machine share them."""
    return {uuid for row in leased for lease in row["gpus"] for uuid in lease["devices"]}


def _take(free: Counter[tuple[str, int]], lease: Mapping[str, Any]) -> None:
    # The worker has not yet reported which GPUs the lease got.
    suiting = [
        kind for kind in free if GpuKind(*kind, 0, 0).suits(lease["gpu_model"], lease["vram_mb"])
    ]
    if suiting:
        free[max(suiting, key=lambda kind: (free[kind], kind))] -= lease["gpus"]


def _name(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("name") or "")


def _vram_of(gpu: Mapping[str, Any]) -> int:
    return int(gpu.get("vram_mb") or 0)


def requirements(job: Row, worker: Row, room: Room) -> list[Requirement]:
    """Return the job's requirements; `forge_fit_of` has decided which of them are met."""
    fit = worker["fit"]
    return [
        Requirement(name=name, wanted=wanted, has=has, met=fit[name], free=free)
        for name, wanted, has, free in (
            *_sizes(job, worker, room),
            *_gpus(job, worker, room),
            *_place(job, worker),
            *_labels(job, worker),
        )
    ]


def wishes(job: Row) -> list[Requirement]:
    """Return the job's requirements without a worker."""
    nothing = Room(Capacity(0, 0, 0), (), 0)
    return requirements(job, NOBODY, nothing)


Said = tuple[str, JsonValue, JsonValue, JsonValue]
"""A requirement's name, and the amounts wanted, present and free."""


def _sizes(job: Row, worker: Row, room: Room) -> Iterator[Said]:
    for name in AMOUNTS:
        if not job[name]:
            continue  # a share of something that this worker lacks
        free = getattr(room.rest, name)
        yield name, job[name], worker[name], round(free, 3) if name == "cpus" else free


def _gpus(job: Row, worker: Row, room: Room) -> Iterator[Said]:
    if job["accelerator"] != "any":
        yield "accelerator", job["accelerator"], worker["accelerator"], None
    if not job["gpus"]:
        return
    suiting = [kind for kind in room.kinds if kind.suits(job["gpu_model"], job["vram_mb"])]
    free = max((kind.free for kind in suiting or room.kinds), default=0)
    yield "gpus", job["gpus"], max((kind.in_all for kind in room.kinds), default=0), free
    if job["gpu_model"] != "*":
        yield "gpu_model", job["gpu_model"], [_counted(kind) for kind in room.kinds], None
    if job["vram_mb"]:
        yield "vram_mb", job["vram_mb"], _vram(job, room), None


def _vram(job: Row, room: Room) -> int:
    """Return the best match among the GPUs."""
    of_model = [kind for kind in room.kinds if kind.suits(job["gpu_model"])]
    enough = [kind for kind in of_model or room.kinds if kind.in_all >= job["gpus"]]
    return max((kind.vram_mb for kind in enough or of_model or room.kinds), default=0)


def _counted(kind: GpuKind) -> str:
    return f"{kind.in_all} x {kind.name}"


def _place(job: Row, worker: Row) -> Iterator[Said]:
    if job["target"] != "auto":
        yield "target", job["target"], "local" if worker["local"] else "worker", None
    if job["nodes"] != 1:
        yield "address", "for gangs", worker["address"], None


def _labels(job: Row, worker: Row) -> Iterator[Said]:
    for name, pattern in sorted(job["labels"].items()):
        if name == MAX_PRICE:
            yield LABEL + name, pattern, worker["price_per_hour"], None
        elif name not in {GANG_NETWORK, PREFERS_SPOT}:
            yield LABEL + name, pattern, worker["labels"].get(name), None
        elif name == GANG_NETWORK and worker["address"] is not None:
            # Without an address, it takes no part in gangs anyway.
            yield LABEL + name, job["launcher"], worker["labels"].get(name), None

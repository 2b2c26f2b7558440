"""A job's requirements against one worker: what is wanted, what it has, what of that is free."""

from collections import defaultdict
from collections.abc import Iterator

from pydantic import JsonValue

from forge_schema.database.pool import Row
from forge_schema.explain.room import Kind, Room
from forge_schema.explain.text import LABEL
from forge_schema.model.explanation import Requirement
from forge_schema.model.machine import Capacity

NOBODY: Row = {
    "cpus": 0,
    "memory_mb": 0,
    "disk_mb": 0,
    "accelerator": "",
    "local": False,
    "labels": {},
    "fit": defaultdict(bool),
}


def requirements(job: Row, worker: Row, room: Room) -> list[Requirement]:
    """Return each thing that a job asks for; whether the worker has it, `forge_fit_of` says."""
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
    """Return what a job asks for, against no worker."""
    nothing = Room(Capacity(0, 0, 0), (), 0)
    return requirements(job, NOBODY, nothing)


Said = tuple[str, JsonValue, JsonValue, JsonValue]
"""A requirement's name, what is wanted, what the worker has, and what of it is free."""


def _sizes(job: Row, worker: Row, room: Room) -> Iterator[Said]:
    for name in ("cpus", "memory_mb", "disk_mb"):
        if not job[name]:
            continue  # a share of what this worker has none of
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
    """Return what the GPUs have that come nearest to those wanted."""
    of_model = [kind for kind in room.kinds if kind.suits(job["gpu_model"])]
    enough = [kind for kind in of_model or room.kinds if kind.in_all >= job["gpus"]]
    return max((kind.vram_mb for kind in enough or of_model or room.kinds), default=0)


def _counted(kind: Kind) -> str:
    return f"{kind.in_all} x {kind.name}"


def _place(job: Row, worker: Row) -> Iterator[Said]:
    if job["target"] != "auto":
        yield "target", job["target"], "local" if worker["local"] else "worker", None
    if job["nodes"] != 1:
        yield "nodes", job["nodes"], 1, None


def _labels(job: Row, worker: Row) -> Iterator[Said]:
    for name, pattern in sorted(job["labels"].items()):
        yield LABEL + name, pattern, worker["labels"].get(name), None

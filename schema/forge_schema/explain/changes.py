"""Find changes to a job that would let one worker take it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from forge_schema.database.pool import Row
from forge_schema.explain.fit import GpuKind
from forge_schema.explain.fleet import Candidate
from forge_schema.explain.text import COUNTS, LABEL, SIZES, amount_text
from forge_schema.model.quantities import MIB, counted, size_text
from forge_schema.model.spec import GANG_NETWORK, HANDLERS, INPUT, MAX_PRICE, RUNS, SECRET, SPOT
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import read

Changes = dict[str, JsonValue]


def for_idle(candidate: Candidate) -> Changes | None:
    """Return changes with which the idle worker could run the job; None if there are none."""
    lacking = {asked.name for asked in candidate.asked if not asked.met}
    if lacking & {LABEL + RUNS, LABEL + HANDLERS, LABEL + GANG_NETWORK, "address"}:
        return None
    if any(name.startswith((LABEL + SECRET, LABEL + INPUT)) for name in lacking):
        return None
    whole = Capacity(candidate.row["cpus"], candidate.row["memory_mb"], candidate.row["disk_mb"])
    kinds = [replace(kind, free=kind.in_all) for kind in candidate.room.kinds]
    changes = _sizes(candidate.wants, whole, kinds)
    if changes is None:
        return None
    if "accelerator" in lacking:
        changes["accelerator"] = candidate.row["accelerator"]
    if "target" in lacking:
        changes["target"] = "auto"
    if LABEL + SPOT in lacking:
        changes["spot"] = None
    if LABEL + MAX_PRICE in lacking:
        if candidate.row["price_per_hour"] is None:
            return None
        changes["max_price"] = candidate.row["price_per_hour"]
    labels = [name.removeprefix(LABEL) for name in lacking if name.startswith(LABEL)]
    if labels := [name for name in labels if name not in {SPOT, MAX_PRICE}]:
        changes["labels"] = {name: candidate.row["labels"].get(name) for name in sorted(labels)}
    return changes


def for_free(candidate: Candidate) -> Changes | None:
    """Return changes with which the job would fit into a busy worker's free resources."""
    return _sizes(
        candidate.wants, candidate.room.rest, [kind for kind in candidate.room.kinds if kind.free]
    )


def free_now(changes: Changes, candidate: Candidate) -> bool:
    """Tell whether the changed job fits into the worker's free resources."""
    sizes = {name: changes[name] for name in Capacity.__slots__ if name in changes}
    lane = read(candidate.wants)
    needs = replace(lane.needs, **sizes)  # type: ignore[arg-type]  # the values have the fields' types
    return candidate.takes and candidate.has_room(replace(lane, needs=needs))


def _sizes(job: Row, have: Capacity, kinds: Sequence[GpuKind]) -> Changes | None:
    changes: Changes = {}
    for name, least in (("cpus", 0.01), ("memory_mb", 1), ("disk_mb", 1)):
        value = getattr(have, name)
        if value < job[name]:
            changes[name] = math.floor(value * 100) / 100 if name == "cpus" else int(value)
            if value < least:
                return None
    if not job["gpus"]:
        return changes
    return {**changes, **_gpus(job, _nearest(job, kinds))} if kinds else None


def _nearest(job: Row, kinds: Sequence[GpuKind]) -> GpuKind:
    def changes(kind: GpuKind) -> tuple[float, int, int]:
        # For a job that names a GPU model, fewer of that model are better than another model.
        model = 0.0 if kind.suits(job["gpu_model"]) else 1.5
        few, small = kind.free < job["gpus"], kind.vram_mb < job["vram_mb"]
        return model + few + small, -kind.free, -kind.vram_mb

    return min(kinds, key=changes)


def _gpus(job: Row, kind: GpuKind) -> Changes:
    changes: Changes = {}
    if kind.free < job["gpus"]:
        changes["gpus"] = kind.free
    if not kind.suits(job["gpu_model"]):
        changes["gpu_model"] = kind.name
    if kind.vram_mb < job["vram_mb"]:
        changes["vram_mb"] = kind.vram_mb
    return changes


def in_words(job: Row, changes: Changes) -> str:
    """Describe the changes: request this instead of that, and drop a label."""
    requested, dropped = [], []
    for name, value in changes.items():
        if name == "labels" and isinstance(value, dict):
            before = job["labels"]
            requested += [
                f"label {n}={new} instead of {before[n]}" for n, new in value.items() if new
            ]
            dropped += [f"--label {n}={before[n]}" for n, new in value.items() if not new]
        elif name == "spot":
            dropped.append("--spot")
        elif name == "max_price":
            before = amount_text(job["labels"][MAX_PRICE])
            requested.append(f"--max-price {amount_text(value)} instead of {before}")
        else:
            requested.append(f"{_thing(name, value)} instead of {_amount(name, job[name])}")
    verbs = (("request", requested), ("drop", dropped))
    return " and ".join(f"{verb} {' and '.join(words)}" for verb, words in verbs if words)


def _thing(name: str, value: JsonValue) -> str:
    amount = _amount(name, value)
    if name in SIZES:
        return f"{amount} of {SIZES[name]}"
    if name in COUNTS:
        return counted(value, COUNTS[name]) if isinstance(value, int | float) else str(value)
    return f"{name.replace('_', ' ')} {value}"


def _amount(name: str, value: JsonValue) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return size_text(value * MIB) if name in SIZES else f"{value:g}"

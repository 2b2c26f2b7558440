"""What a job asks of its machines, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forge_schema.model.quantities import MIB, counted, counted_range, size_text

if TYPE_CHECKING:
    from forge_schema.model.job import JobDetail


def resources(job: JobDetail) -> str:
    """Return a job's resources in one line: `1 GPU, a share of its worker's CPUs and memory`."""
    asked = job.spec.get("resources")
    if not isinstance(asked, Mapping):
        return ""
    most = job.spec.get("max_nodes", job.nodes)
    many = counted_range(job.nodes, most, "machine")
    whose = f"{many}, each with " if job.nodes > 1 else ""
    return whose + _of_a_machine(asked)


def _of_a_machine(asked: Mapping[str, Any]) -> str:
    memory, disk = asked.get("memory_mb"), asked.get("disk_mb")
    parts = [
        *_gpus(asked),
        *([counted(asked["cpus"], "CPU")] if asked.get("cpus") else []),
        *([f"{size_text(memory * MIB)} of memory"] if memory else []),
        *_shares(asked),
        *([f"{size_text(disk * MIB)} of disk"] if disk else []),
        *([f"spot machines: {asked['spot']}"] if asked.get("spot") else []),
        *([f"at most {asked['max_price']:g} an hour"] if "max_price" in asked else []),
    ]
    return ", ".join(parts)


def _gpus(asked: Mapping[str, Any]) -> list[str]:
    if not asked.get("gpus"):
        return [] if asked.get("accelerator") in {None, "any"} else [str(asked["accelerator"])]
    model, vram = asked.get("gpu_model", "*"), asked.get("vram_mb")
    kind = "" if model == "*" else f" like {model}"
    room = f" with {size_text(vram * MIB)}" if vram else ""
    device = "" if asked.get("accelerator") in {None, "any"} else f" ({asked['accelerator']})"
    return [f"{counted(asked['gpus'], 'GPU')}{kind}{room}{device}"]


def _shares(asked: Mapping[str, Any]) -> list[str]:
    names = {"cpus": "CPUs", "memory_mb": "memory"}
    shares = [word for name, word in names.items() if name in asked and asked[name] is None]
    return [f"a share of its worker's {' and '.join(shares)}"] if shares else []

"""The limits of the machine: what must stay free for a new job to be taken."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from forge_worker.machine.observation import Observation
from forge_worker.settings.machine import MachineSettings


@dataclass(frozen=True, slots=True)
class Limits:
    """Percent and MiB; None is no limit."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None
    memory_reserve_mb: int = 0
    disk_floor_mb: int = 0

    def passed(self, seen: Observation, own_gpus: Collection[str] = ()) -> Iterator[str]:
        """Say of each limit that is passed how; what the worker's own jobs do on GPUs is fine."""
        uses = {
            "the CPUs are used": (seen.cpu_percent, self.cpu_percent),
            "the memory is used": (seen.memory_percent, self.memory_percent),
            **{
                f"GPU {uuid} is used by others": (look.utilisation, self.gpu_percent)
                for uuid, look in seen.gpus.items()
                if uuid not in own_gpus
            },
        }
        for words, (percent, limit) in uses.items():
            if percent is not None and limit is not None and percent > limit:
                yield f"{words} to {percent:.0f} %, at most {limit:g} % is allowed"
        floors = {
            "memory": (seen.memory_free_mb, self.memory_reserve_mb),
            "disk": (seen.disk_free_mb, self.disk_floor_mb),
        }
        for what, (free, floor) in floors.items():
            if free < floor:
                yield f"{free} MiB of {what} are free, {floor} MiB must stay free"


def limits_of(settings: MachineSettings) -> Limits:
    """Return the limits that the operator has set."""
    return Limits(
        settings.max_cpu_percent,
        settings.max_memory_percent,
        settings.max_gpu_percent,
        settings.memory_reserve_mb,
        settings.disk_floor_mb,
    )

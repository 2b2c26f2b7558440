"""The observation: how the machine as a whole is, for its limits and for its heartbeats."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from forge_worker.machine.gpu_meter import GpuLook, GpuMeter


@dataclass(frozen=True, slots=True)
class Observation:
    """The machine at one moment: percent of all CPUs and of the memory, MiB free, each GPU."""

    cpu_percent: float
    memory_percent: float
    memory_free_mb: int
    disk_free_mb: int
    gpus: Mapping[str, GpuLook] = field(default_factory=dict)

    def reported(self) -> dict[str, object]:
        """Return it as JSON takes it."""
        return {
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_percent": round(self.memory_percent, 1),
            "memory_free_mb": self.memory_free_mb,
            "disk_free_mb": self.disk_free_mb,
            "gpus": {uuid: look.reported() for uuid, look in self.gpus.items()},
        }


class Observer:
    """Looks at the machine; one thread's own, since the use of CPUs is counted between looks."""

    def __init__(self, folder: Path, meter: GpuMeter | None = None) -> None:
        self._folder = folder
        self._meter = meter or GpuMeter()
        self._ticks = _ticks()

    def look(self, gpus: Iterable[str] = ()) -> Observation:
        """Return how the machine is; a GPU that NVML does not know is left out.

        Raises:
            OSError: the folder is gone.
        """
        memory = psutil.virtual_memory()
        return Observation(
            cpu_percent=self._cpu_percent(),
            memory_percent=float(memory.percent),
            memory_free_mb=memory.available >> 20,
            disk_free_mb=self.disk_free_mb(),
            gpus=self._meter.look(gpus),
        )

    def disk_free_mb(self) -> int:
        """Return what is free where jobs write, MiB; from any thread.

        Raises:
            OSError: the folder is gone.
        """
        return psutil.disk_usage(str(self._folder)).free >> 20

    def _cpu_percent(self) -> float:
        before, self._ticks = self._ticks, _ticks()
        busy, whole = (now - then for now, then in zip(self._ticks, before, strict=True))
        return min(100.0, 100.0 * busy / whole) if whole > 0 else 0.0


def _ticks() -> tuple[float, float]:
    """Return the seconds that all CPUs were busy, and those that passed for them."""
    times = psutil.cpu_times()._asdict()
    # Linux counts a guest's time as its host's too.
    whole = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
    return whole - times["idle"] - times.get("iowait", 0.0), whole

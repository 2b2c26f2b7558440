"""Sum up the usage of one attempt from looks at its GPUs and its processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forge_schema.model.lease import Usage

from forge_worker.machine.gpu_meter import GpuLook
from forge_worker.runners.process.descendants import JobUse


@dataclass(slots=True)
class GpuTally:
    """One GPU's part: joules, peak memory in MiB, and its newest look, at seconds of a clock.

    `energy_j` is None until the GPU reports its energy or its power.
    """

    energy_j: float | None = None
    peak_mb: int | None = None
    last: GpuLook = field(default_factory=GpuLook)
    counted_j: float | None = None
    drawn_w: float | None = None
    at: float = 0.0

    def take(self, look: GpuLook, now: float) -> None:
        """Add the use since the previous look."""
        self.last = look
        if look.memory_mb is not None:
            self.peak_mb = max(self.peak_mb or 0, look.memory_mb)
        if look.energy_j is None and look.power_w is None:
            return
        self.energy_j = (self.energy_j or 0.0) + self._since(look, now)
        self.counted_j, self.drawn_w, self.at = look.energy_j, look.power_w, now

    def _since(self, look: GpuLook, now: float) -> float:
        if look.energy_j is not None and self.counted_j is not None:
            # A counter that fell has restarted from zero.
            more = look.energy_j - self.counted_j
            return more if more >= 0 else look.energy_j
        if look.power_w is not None and self.drawn_w is not None:
            return (now - self.at) * (look.power_w + self.drawn_w) / 2
        return 0.0


class UsageMeter:
    """Sums up looks into total and current use."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = {uuid: GpuTally() for uuid in gpus}
        self._cpu_seconds: float | None = None
        self._peak_memory: float | None = None
        self._use: JobUse | None = None

    def take(self, looks: Mapping[str, GpuLook], use: JobUse | None, now: float) -> None:
        """Add one look, taken at `now` seconds; unknown values are left out."""
        for uuid, look in looks.items():
            self._gpus[uuid].take(look, now)
        if use is not None:
            self._use = use
            self._cpu_seconds = max(self._cpu_seconds or 0.0, use.cpu_seconds)
            self._peak_memory = max(self._peak_memory or 0.0, use.peak_memory_mb)

    def usage(self, held_s: float, money_per_second: float) -> Usage:
        """Return the total use of an attempt that held its GPUs for `held_s` seconds."""
        joules = [tally.energy_j for tally in self._gpus.values()]
        known = [j for j in joules if j is not None]
        peaks = [tally.peak_mb for tally in self._gpus.values() if tally.peak_mb is not None]
        return Usage(
            gpu_seconds=held_s * len(self._gpus),
            # A sum over some GPUs would be mistaken for the total.
            energy_j=sum(known) if known and len(known) == len(joules) else None,
            cost=held_s * money_per_second if money_per_second else None,
            cpu_seconds=self._cpu_seconds,
            peak_memory_mb=None if self._peak_memory is None else round(self._peak_memory),
            peak_vram_mb=max(peaks, default=None),
        )

    def values(self) -> dict[str, Any]:
        """Return the newest look as the values of a sample."""
        gpus = {uuid: tally.last.reported() for uuid, tally in self._gpus.items()}
        values: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if self._use is not None:
            values["cpu_seconds"] = round(self._use.cpu_seconds, 3)
            values["memory_mb"] = round(self._use.memory_mb)
        return values

    def kept(self) -> dict[str, Any]:
        """Return what a later agent needs to continue, for JSON."""
        tallies = {
            uuid: {"energy_j": t.energy_j, "peak_mb": t.peak_mb, "counted_j": t.counted_j}
            for uuid, t in self._gpus.items()
        }
        return {"cpu_seconds": self._cpu_seconds, "memory": self._peak_memory, "gpus": tallies}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Continue from what an earlier agent kept.

        Raises:
            KeyError, TypeError: it was not returned by `kept`.
        """
        for uuid in self._gpus.keys() & kept["gpus"].keys():
            self._gpus[uuid] = GpuTally(**kept["gpus"][uuid])
        self._cpu_seconds, self._peak_memory = kept["cpu_seconds"], kept["memory"]

"""The GPU of an Apple chip, which PyTorch calls MPS and which shares the machine's memory."""

import json
import platform
from contextlib import suppress
from typing import ClassVar

from forge_worker.devices.gpu import GpuDevice, Use, asked


class Apple:
    """Detect the GPU on macOS. Its use cannot be measured."""

    accelerator: ClassVar[str] = "mps"
    fresh_s: ClassVar[float] = 60.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[GpuDevice]:
        """Return the one GPU, with a UUID derived from the machine's."""
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return []
        hardware = read_hardware(asked("system_profiler", "-json", "SPHardwareDataType") or "")
        memory = (asked("sysctl", "-n", "hw.memsize") or "").strip()
        if hardware is None or not memory.isdigit():
            return []
        chip, machine = hardware
        system = platform.mac_ver()[0]
        return [GpuDevice(f"MPS-{machine}", chip, int(memory) >> 20, vendor="apple", driver=system)]

    def use(self) -> dict[str, Use] | None:
        return None


def read_hardware(text: str) -> tuple[str, str] | None:
    """Return the chip's name and the machine's UUID, or None if one is missing."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        hardware = json.loads(text)["SPHardwareDataType"][0]
        return str(hardware["chip_type"]), str(hardware["platform_UUID"])
    return None

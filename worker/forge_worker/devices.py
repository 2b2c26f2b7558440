"""The accelerators of this machine; none is ever invented."""

from dataclasses import asdict, dataclass
from typing import Any

import pynvml


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, by the UUID under which it is assigned; memory in MiB."""

    uuid: str
    name: str
    vram_mb: int

    def reported(self) -> dict[str, Any]:
        return asdict(self)


def gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs that NVML sees; an empty list where there is no NVML."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [_gpu(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: Any) -> Gpu:  # noqa: ANN401 - NVML's own opaque type
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        vram_mb=int(memory.total) >> 20,
    )

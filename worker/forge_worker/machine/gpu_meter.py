"""The GPU meter: current measurements from NVML. Unknown values are None, never a guess."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuLook:
    """One GPU at one moment: percent, MiB, watts, °C, joules and errors since its driver started.

    `ecc` counts uncorrected errors. `lost` means that the GPU no longer answers at all. A MIG slice
    knows only its memory.
    """

    utilisation: float | None = None
    memory_mb: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    energy_j: float | None = None
    ecc: int | None = None
    lost: bool = False

    def reported(self) -> dict[str, object]:
        """Return the known values for JSON."""
        pairs = {name: getattr(self, name) for name in self.__slots__}
        return {name: v for name, v in pairs.items() if v is not None and v is not False}


class GpuMeter:
    """Keep NVML open, because opening it can take seconds while the GPUs are idle.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open = False

    def look(self, uuids: Iterable[str]) -> dict[str, GpuLook]:
        """Return a measurement of each GPU, without those that NVML does not know."""
        if not (wanted := list(uuids)) or not self._opened():
            return {}
        looks = {uuid: _look(uuid) for uuid in wanted}
        return {uuid: look for uuid, look in looks.items() if look is not None}

    def close(self) -> None:
        """Close NVML; the next look opens it again."""
        with self._lock:
            if self._open:
                pynvml.nvmlShutdown()
            self._open = False

    def _opened(self) -> bool:
        with self._lock:
            if not self._open:
                with suppress(pynvml.NVMLError):
                    pynvml.nvmlInit()
                    self._open = True
            return self._open


def is_lost(error: Exception) -> bool:
    """Return whether NVML's error means that the GPU is gone until the machine restarts."""
    gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
    return getattr(error, "value", None) in gone


def _look(uuid: str) -> GpuLook | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return GpuLook(
            utilisation=_said(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            memory_mb=_said(lambda: _used_bytes(handle) >> 20),
            power_w=_said(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            temperature_c=_said(lambda: _celsius(handle)),
            energy_j=_said(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
            ecc=_said(lambda: _uncorrected(handle)),
        )
    except pynvml.NVMLError as error:
        return GpuLook(lost=True) if is_lost(error) else None


def _said(ask: Callable[[], T]) -> T | None:
    """Return NVML's answer, or None if the GPU has none. A lost GPU raises its error."""
    try:
        return ask()
    except pynvml.NVMLError as error:
        if is_lost(error):
            raise
        return None


def _used_bytes(handle: Any) -> int:  # noqa: ANN401 - NVML's own opaque type
    try:
        # Version 2 excludes the memory that the driver reserves.
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).used)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def _celsius(handle: Any) -> float:  # noqa: ANN401 - as above
    try:
        return float(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU))
    except pynvml.NVMLError as error:
        # An older driver has only version 1.
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _uncorrected(handle: Any) -> int:  # noqa: ANN401 - as above
    kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))

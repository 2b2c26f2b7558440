"""NVIDIA GPUs through NVML, the driver's own library, loaded by pynvml."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, ClassVar, TypeVar

import pynvml
import structlog

from forge_worker.devices.gpu import GpuDevice, Use

T = TypeVar("T")
Handle = Any
LeftOut = Callable[[int, pynvml.NVMLError], None]

log = structlog.get_logger(__name__)


class Nvml:
    """Keep NVML open, because opening it can take seconds while the GPUs are idle."""

    accelerator: ClassVar[str] = "cuda"
    fresh_s: ClassVar[float] = 1.0
    complete: ClassVar[bool] = True

    def __init__(self) -> None:
        self._lock = Lock()
        self._open = False
        self._silent: set[int] = set()

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs; a GPU in MIG mode is replaced by its slices."""
        if not self._opened():
            return []
        driver = _said(pynvml.nvmlSystemGetDriverVersion) or ""
        whole = list(_handles(self._left_out))
        return [gpu for one in whole for gpu in _gpus(*one, str(driver), self._left_out)]

    def use(self) -> dict[str, Use] | None:
        """Return the use of each GPU or slice, or None if NVML does not answer."""
        if not self._opened():
            return None
        whole = [handle for _, handle in _handles(self._left_out)]
        handles = [part for handle in whole for part in (_slices(handle) or [handle])]
        used = ((_uuid(part), _use(part)) for part in handles)
        return {uuid: use for uuid, use in used if uuid}

    def _opened(self) -> bool:
        with self._lock:
            if not self._open:
                with suppress(pynvml.NVMLError):
                    pynvml.nvmlInit()
                    self._open = True
            return self._open

    def _left_out(self, number: int, error: pynvml.NVMLError) -> None:
        # The GPU is checked every second, but the failure is logged once.
        if number not in self._silent:
            self._silent.add(number)
            log.warning("gpu_unresponsive", gpu=number, error=str(error))


def _handles(left_out: LeftOut) -> Iterator[tuple[int, Handle]]:
    for number in range(_said(pynvml.nvmlDeviceGetCount) or 0):
        try:
            yield number, pynvml.nvmlDeviceGetHandleByIndex(number)
        except pynvml.NVMLError as error:
            left_out(number, error)


def _gpus(number: int, handle: Handle, driver: str, left_out: LeftOut) -> list[GpuDevice]:
    try:
        whole = _gpu(handle, number, driver, "", None)
        if not _in_mig_mode(handle):
            return [whole]
        own = (whole.capability, whole.uuid)
        return [_gpu(part, number, driver, *own) for part in _slices(handle)]
    except pynvml.NVMLError as error:
        left_out(number, error)
        return []


def _gpu(
    handle: Handle, number: int, driver: str, capability: str, parent: str | None
) -> GpuDevice:
    return GpuDevice(
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        vram_mb=_said(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20) or 0,
        capability=_said(lambda: _capability(handle)) or capability,
        driver=driver,
        parent=parent,
        number=number,
    )


def _capability(handle: Handle) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _in_mig_mode(handle: Handle) -> bool:
    modes = _said(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return bool(modes and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def _slices(handle: Handle) -> list[Handle]:
    if not _in_mig_mode(handle):
        return []
    most = _said(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
    found: list[Handle] = []
    for number in range(most):
        # The numbers have gaps where slices were removed.
        with suppress(pynvml.NVMLError):
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return found


def _uuid(handle: Handle) -> str | None:
    return _said(lambda: str(pynvml.nvmlDeviceGetUUID(handle)))


def _use(handle: Handle) -> Use:
    try:
        computing = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        # Some virtual GPUs do not report their processes.
        return Use() if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED else Use(gone=True)
    drawing = _said(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) or []
    pids = frozenset(int(process.pid) for process in computing)
    # A process that does both counts once, as computing. Its memory is not always reported.
    others = [process.usedGpuMemory or 0 for process in drawing if process.pid not in pids]
    return Use(pids, sum(others) >> 20)


def _said(ask: Callable[[], T]) -> T | None:
    """Return NVML's answer, or None on an error."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None

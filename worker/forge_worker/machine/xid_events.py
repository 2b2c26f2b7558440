"""The faults that NVIDIA's driver reports: XIDs, what they mean, and how they are heard."""

from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_void_p, cast
from dataclasses import dataclass
from threading import Event
from typing import Any

import pynvml
import structlog

# The numbers are those of NVIDIA's Xid catalog
# (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Fatal are those for which
# the catalog recommends a reset of the GPU or its host, NVLink errors, and contained memory errors:
# after these the GPU still works, but the job is not to blame, and only a reset replaces the bad
# memory. Two with a recommended reset are left out: 109, a context switch time-out, usually caused
# by a kernel that never ends, and 156, which only reports that a resource was retired.
FATAL = {
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halted",
    64: "a bad row of memory could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GPU's system processor did not answer",
    120: "the GPU's system processor failed",
    136: "NVLink could not be trained",
    140: "ECC error that could not be recovered from",
    143: "the GPU could not be initialised",
    155: "NVLink error",
    158: "fatal time-out of the GPU",
}
XID = pynvml.nvmlEventTypeXidCriticalError

log = structlog.get_logger(__name__)


def xid_fault(code: int) -> str | None:
    """Return why a GPU that reported this XID is unfit, or None if it is fit."""
    fault = FATAL.get(code)
    return None if fault is None else f"XID {code}: {fault}"


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID and the UUID of the GPU that reported it."""

    gpu: str
    xid: int


class GpuEvents:
    """NVML's events, for one thread; `gpus` maps each whole GPU to itself or its lent slices.

    XIDs are always reported for whole GPUs.
    """

    def __init__(self, lent: Sequence[str]) -> None:
        self._lent = set(lent)
        self._set: Any = None
        self._known: dict[int | None, str] = {}
        self._opened = False
        self.gpus: dict[str, list[str]] = {}

    def wait(self, seconds: float) -> XidEvent | None:
        """Return the next XID, or None if there was none in time.

        Raises:
            pynvml.NVMLError: the driver cannot answer, for example because a GPU is lost.
        """
        if not self._opened:
            self._open()
        if not self._known:
            Event().wait(seconds)
            return None
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, max(1, round(seconds * 1000)))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                raise
            return None
        gpu = self._known.get(_address(event.device))
        return XidEvent(gpu, int(event.eventData)) if gpu and event.eventType == XID else None

    def forget(self, gpu: str) -> None:
        """Stop listening to a GPU; a lost one would flood the events of the others."""
        self._lent -= set(self.gpus.pop(gpu, ()))
        self.close()

    def close(self) -> None:
        """Free NVML's events; the next `wait` opens them again."""
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
                pynvml.nvmlShutdown()
        self._set, self._known, self._opened = None, {}, False

    def _open(self) -> None:
        self._opened = True
        self.gpus = {}
        try:
            pynvml.nvmlInit()
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("gpu_faults_unwatched", error=str(error))
            return
        for uuid in sorted(self._lent):
            self._listen(uuid)

    def _listen(self, uuid: str) -> None:
        gpu = uuid
        try:
            handle = _whole(pynvml.nvmlDeviceGetHandleByUUID(uuid))
            gpu = str(pynvml.nvmlDeviceGetUUID(handle))
            if gpu not in self.gpus:
                pynvml.nvmlDeviceRegisterEvents(handle, XID, self._set)
                self._known[_address(handle)] = gpu
        except pynvml.NVMLError as error:
            log.warning("gpu_faults_unwatched", gpu=uuid, error=str(error))
        self.gpus.setdefault(gpu, []).append(uuid)


def _whole(handle: Any) -> Any:  # noqa: ANN401 - NVML's own opaque type
    """Return the whole GPU of a slice, and any other GPU unchanged."""
    try:
        sliced = bool(pynvml.nvmlDeviceIsMigDeviceHandle(handle).value)
    except pynvml.NVMLError:
        sliced = False
    return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if sliced else handle


def _address(handle: Any) -> int | None:  # noqa: ANN401 - as above
    # A GPU that has fallen off the bus cannot return its UUID, but its handle stays the same.
    return cast(handle, c_void_p).value

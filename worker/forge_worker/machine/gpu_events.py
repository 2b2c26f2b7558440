"""The events of NVML: the XIDs that the driver reports, always for whole GPUs."""

from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_void_p, cast
from dataclasses import dataclass
from threading import Event
from typing import Any

import pynvml
import structlog

XID = pynvml.nvmlEventTypeXidCriticalError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """An XID and the UUID of the GPU that it is of."""

    gpu: str
    xid: int


class GpuEvents:
    """One thread's own. `gpus` has for each GPU what is lent of it: itself, or its slices."""

    def __init__(self, lent: Sequence[str]) -> None:
        self._lent = set(lent)
        self._set: Any = None
        self._known: dict[int | None, str] = {}
        self._opened = False
        self.gpus: dict[str, list[str]] = {}

    def wait(self, seconds: float) -> Heard | None:
        """Return the next XID, or None: there was none in time.

        Raises:
            pynvml.NVMLError: the driver cannot say; a lost GPU is one reason.
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
        return Heard(gpu, int(event.eventData)) if gpu and event.eventType == XID else None

    def forget(self, gpu: str) -> None:
        """Listen to a GPU no more: one that is lost drowns the others."""
        self._lent -= set(self.gpus.pop(gpu, ()))
        self.close()

    def close(self) -> None:
        """Hear no more; the next wait opens all again."""
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
            log.warning("faults of GPUs are not heard of", error=str(error))
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
            log.warning("faults of a GPU are not heard of", gpu=uuid, error=str(error))
        self.gpus.setdefault(gpu, []).append(uuid)


def _whole(handle: Any) -> Any:  # noqa: ANN401 - NVML's own opaque type
    """Return the GPU that a slice is of, and any other GPU as it is."""
    try:
        sliced = bool(pynvml.nvmlDeviceIsMigDeviceHandle(handle).value)
    except pynvml.NVMLError:
        sliced = False
    return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if sliced else handle


def _address(handle: Any) -> int | None:  # noqa: ANN401 - as above
    # A GPU that has fallen off the bus cannot be asked who it is; its handle stays the same.
    return cast(handle, c_void_p).value

"""GPU health: faults reported by NVIDIA's driver, and GPUs in quarantine because of them."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_void_p, cast
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any

import pynvml
import structlog
from forge_schema.model.states import Reason
from forge_schema.model.worker import Machine

from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.clock import this_boot
from forge_worker.files.atomic import write_atomically
from forge_worker.loop import Bell, Loop
from forge_worker.machine.gpu_meter import GpuLook, GpuMeter, is_lost
from forge_worker.machine.slots import Slots

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
# A job that computes nonsense can cause these, and the next job on the GPU does not suffer.
THE_JOBS_OWN = frozenset({13, 31, 32, 43, 45, 68, 69, 109})
XID = pynvml.nvmlEventTypeXidCriticalError
HEAR_S = 0.5
SOON_S = 0.05
SETTLE_S = 3.0
FILE = "quarantine.json"
HINT = "reset the GPU or restart the machine; `forge-worker --recover` lends it again"

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


class FaultWatch(Loop):
    """Report XIDs and new ECC errors as faults, possibly repeatedly; slices share their GPU's."""

    name = "faults"

    def __init__(
        self,
        gpus: Sequence[str],
        meter: GpuMeter,
        fault: Callable[[str, str], None],
        *,
        look_s: float,
    ) -> None:
        super().__init__(SOON_S)
        self._meter = meter
        self._fault = fault
        self._look_s = look_s
        self._events = GpuEvents(gpus)
        self._before: Mapping[str, GpuLook] = {}
        self._looked_at = float("-inf")
        self._asking: list[Event] = []
        self.needed = bool(gpus)

    def settle(self, patience_s: float = SETTLE_S) -> None:
        """Return once everything that was reported before this call has been handled."""
        if self._thread is None or not self._thread.is_alive():
            return
        heard = Event()
        self._asking.append(heard)
        heard.wait(patience_s)

    def step(self) -> None:
        """Wait briefly for events, and read the ECC counters when due."""
        asking = tuple(self._asking)
        lost = self._handle_events(SOON_S if asking else HEAR_S)
        if asking or lost or monotonic() - self._looked_at >= self._look_s:
            self._look()
        for heard in asking:
            self._asking.remove(heard)
            heard.set()

    def end(self, patience_s: float | None = None) -> None:
        super().end(patience_s)
        if self._thread is None or not self._thread.is_alive():
            self._events.close()

    def _handle_events(self, seconds: float) -> bool:
        """Handle the events of the next seconds; return whether a GPU is lost."""
        try:
            while not self.ending and (event := self._events.wait(seconds)) is not None:
                seconds = SOON_S
                log.warning("gpu_xid", gpu=event.gpu, xid=event.xid)
                if why := xid_fault(event.xid):
                    self._broken(event.gpu, why)
        except pynvml.NVMLError as error:
            if not is_lost(error):
                raise
            self._ending.wait(seconds)
            return True
        return False

    def _look(self) -> None:
        self._looked_at = monotonic()
        looks = self._meter.look(list(self._events.gpus))
        # A reloaded driver counts from zero, so each look is compared with the one before it.
        counted = {gpu: look for gpu, look in looks.items() if look.ecc is not None}
        earlier, self._before = self._before, {**self._before, **counted}
        for gpu, look in looks.items():
            before = earlier[gpu].ecc if gpu in earlier else look.ecc
            if look.lost:
                self._broken(gpu, "the GPU no longer answers")
                self._events.forget(gpu)
            elif look.ecc is not None and before is not None and look.ecc > before:
                self._broken(gpu, f"{look.ecc - before} uncorrected ECC errors")

    def _broken(self, gpu: str, why: str) -> None:
        for lent in self._events.gpus.get(gpu, ()):
            self._fault(lent, why)


class Quarantine:
    """GPUs that must not be used, stored on disk until the machine restarts and resets them."""

    def __init__(self, folder: Path, *, boot: Callable[[], str] = this_boot) -> None:
        self._file = folder / FILE
        self._boot = boot()
        self._lock = Lock()
        self._reasons = self._read()
        for uuid, why in self._reasons.items():
            log.warning("gpu_quarantined", gpu=uuid, reason=why, hint=HINT)

    @property
    def uuids(self) -> frozenset[str]:
        """UUIDs of the GPUs in quarantine."""
        return frozenset(self._reasons)

    def reasons(self) -> dict[str, str]:
        """Return the reason for each GPU's quarantine, by UUID."""
        return dict(self._reasons)

    def add(self, uuid: str, why: str) -> bool:
        """Put a GPU in quarantine; return False if it already was."""
        with self._lock:
            if uuid in self._reasons:
                return False
            self._reasons = {**self._reasons, uuid: why}
            try:
                kept = json.dumps({"boot": self._boot, "gpus": self._reasons})
                write_atomically(self._file, kept, durable=False)
            except OSError as error:
                # The quarantine still holds while this agent runs.
                log.warning("quarantine_unwritable", error=str(error))
        log.error("gpu_quarantined", gpu=uuid, reason=why, hint=HINT)
        return True

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            boot, reasons = kept["boot"], dict(kept["gpus"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("quarantine_unreadable", file=str(self._file), error=str(error))
            return {}
        return reasons if boot == self._boot else {}


def release(folder: Path) -> list[str]:
    """End the quarantine of all GPUs of this worker, and return their UUIDs.

    The worker must be stopped: a running one has the list in memory.
    """
    held = sorted(Quarantine(folder).uuids)
    (folder / FILE).unlink(missing_ok=True)
    return held


class Faults:
    """Take faulty GPUs from jobs and from the worker's registration. Thread-safe."""

    def __init__(
        self,
        quarantine: Quarantine,
        slots: Slots,
        attempts: Callable[[], Collection[Attempt]],
        changed: Bell,
    ) -> None:
        self._quarantine = quarantine
        self._slots = slots
        self._attempts = attempts
        self._changed = changed
        self._registered_without: frozenset[str] = frozenset()
        for uuid in quarantine.uuids:
            slots.gpus.withdraw(uuid)

    def add(self, gpu: str, why: str) -> None:
        """Quarantine a GPU and stop its job, if the GPU was healthy until now."""
        if self._quarantine.add(gpu, why):
            self._slots.gpus.withdraw(gpu)
            self.stop_jobs()
            self._changed.ring()

    def stop_jobs(self) -> None:
        """Stop every job that has a GPU in quarantine, including one that has just got it."""
        reasons = self._quarantine.reasons()
        lent = self._slots.lent if reasons else {}
        for attempt in self._attempts() if reasons else ():
            slot = lent.get(attempt.fence.token)
            broken = [uuid for uuid in slot.gpu_uuids if uuid in reasons] if slot else []
            if broken:
                detail = "; ".join(f"{uuid}: {reasons[uuid]}" for uuid in broken)
                attempt.request_stop(Stop(Reason.GPU_FAULT, detail))

    def outdated(self) -> bool:
        """Return whether the queue still lists GPUs that are in quarantine."""
        return self._registered_without != self._quarantine.uuids

    @contextmanager
    def left_out(self, machine: Machine) -> Iterator[Machine]:
        """Yield the machine without GPUs in quarantine; the caller registers it in the block."""
        unfit = self._quarantine.uuids
        fit = [gpu for gpu in machine.gpus if gpu.uuid not in unfit]
        accelerator = machine.accelerator if fit or not unfit else "cpu"
        yield replace(machine, gpus=fit, accelerator=accelerator)
        self._registered_without = unfit

    def condition(self) -> dict[str, object]:
        """Return the GPUs in quarantine, as a part of the machine's condition."""
        reasons = self._quarantine.reasons()
        return {"quarantine": reasons} if reasons else {}

"""GPUs as NVML measures them, unknown values as None; faulty ones are in quarantine until reset."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, TypeVar

import pynvml
import structlog
from forge_schema.model.states import Reason
from forge_schema.model.worker import Machine

from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.clock import this_boot
from forge_worker.devices.nvidia import OpenNvml
from forge_worker.files.small_files import write_atomically
from forge_worker.loop import Bell, Loop
from forge_worker.machine.slots import Slots
from forge_worker.machine.xid_events import GpuEvents, xid_fault

T = TypeVar("T")
FILE = "quarantine.json"
HINT = "reset the GPU or restart the machine; `forge-worker --recover` gives it to jobs again"
HEAR_S = 0.5
SOON_S = 0.05
CATCH_UP_S = 3.0

log = structlog.get_logger(__name__)


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


class GpuMeter(OpenNvml):
    """Measures GPUs."""

    def look(self, uuids: Iterable[str]) -> dict[str, GpuLook]:
        """Return a measurement of each GPU, without those that NVML does not know."""
        if not (wanted := list(uuids)) or not self._opened():
            return {}
        looks = {uuid: _look(uuid) for uuid in wanted}
        return {uuid: look for uuid, look in looks.items() if look is not None}


def is_lost(error: Exception) -> bool:
    """Return whether NVML's error means that the GPU is gone until the machine restarts."""
    gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
    return getattr(error, "value", None) in gone


def _look(uuid: str) -> GpuLook | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return GpuLook(
            utilisation=_answer(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            memory_mb=_answer(lambda: _used_bytes(handle) >> 20),
            power_w=_answer(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            temperature_c=_answer(lambda: _celsius(handle)),
            energy_j=_answer(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
            ecc=_answer(lambda: _uncorrected(handle)),
        )
    except pynvml.NVMLError as error:
        return GpuLook(lost=True) if is_lost(error) else None


def _answer(ask: Callable[[], T]) -> T | None:
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

    def catch_up(self, patience_s: float = CATCH_UP_S) -> None:
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


class Faults:
    """Take faulty GPUs from jobs and from the worker's registration. Thread-safe."""

    def __init__(
        self,
        quarantine: Quarantine,
        slots: Slots,
        attempts: Callable[[], Collection[LiveAttempt]],
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

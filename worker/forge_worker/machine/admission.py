"""Admission control: take no new job while the machine is past its limits, nor soon after."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from time import monotonic
from typing import Protocol

import psutil
import structlog
from forge_schema.model.quantities import MIB, duration_text, size_text

from forge_worker.loop import Loop
from forge_worker.machine.gpu_health import GpuLook, GpuMeter
from forge_worker.settings.sections import MachineSettings

# CPU use is measured between two looks; over a shorter interval it is meaningless.
SHORTEST_MEASUREMENT_S = 1.0
# Claims look at the disk, which may be many a second.
TRY_S = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Observation:
    """The machine at one moment: CPU and memory use in percent, free MiB, each GPU.

    `disk_fault` is why the free disk cannot be used, which then counts as none.
    """

    cpu_percent: float
    memory_percent: float
    memory_free_mb: int
    disk_free_mb: int
    gpus: Mapping[str, GpuLook] = field(default_factory=dict)
    disk_fault: str = ""

    def reported(self) -> dict[str, object]:
        """Return it as JSON-compatible values."""
        return {
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_percent": round(self.memory_percent, 1),
            "memory_free_mb": self.memory_free_mb,
            "disk_free_mb": self.disk_free_mb,
            "gpus": {uuid: look.reported() for uuid, look in self.gpus.items()},
        }


class Observer:
    """Observe the machine, from one thread: CPU use is measured between two looks."""

    def __init__(self, folder: Path, meter: GpuMeter | None = None) -> None:
        self._folder = folder
        self._meter = meter or GpuMeter()
        self._ticks = _ticks()
        self._tried_at, self._disk_fault = -TRY_S, ""

    def look(self, gpus: Iterable[str] = ()) -> Observation:
        """Return the state of the machine; a GPU that NVML does not know is left out.

        Raises:
            OSError: the folder no longer exists.
        """
        memory, (disk_free_mb, disk_fault) = psutil.virtual_memory(), self._disk()
        return Observation(
            cpu_percent=self._cpu_percent(),
            memory_percent=float(memory.percent),
            memory_free_mb=memory.available >> 20,
            disk_free_mb=disk_free_mb,
            gpus=self._meter.look(gpus),
            disk_fault=disk_fault,
        )

    def disk_free_mb(self) -> int:
        """Return the free disk space where jobs write, in MiB. Thread-safe.

        Raises:
            OSError: the folder no longer exists.
        """
        return self._disk()[0]

    def _disk(self) -> tuple[int, str]:
        free_mb, now = psutil.disk_usage(str(self._folder)).free >> 20, monotonic()
        if now - self._tried_at >= TRY_S:
            self._tried_at, self._disk_fault = now, _fault(self._folder)
        return (0 if self._disk_fault else free_mb), self._disk_fault

    def _cpu_percent(self) -> float:
        before, self._ticks = self._ticks, _ticks()
        busy, whole = (now - then for now, then in zip(self._ticks, before, strict=True))
        return min(100.0, 100.0 * busy / whole) if whole > 0 else 0.0


def _fault(folder: Path) -> str:
    """Return why no file can be made in a folder, or "".

    There may be free bytes and no inode or no quota left; and what a kernel has made read-only
    after a fault need not be called so.
    """
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"no file can be made in {folder}: {error.strerror}"
    return ""


def _ticks() -> tuple[float, float]:
    """Return the busy seconds and all seconds, summed over all CPUs."""
    times = psutil.cpu_times()._asdict()
    # Linux counts a guest's time as its host's too.
    whole = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
    return whole - times["idle"] - times.get("iowait", 0.0), whole


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Percent and MiB; None is no limit."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None
    memory_reserve_mb: int = 0
    disk_floor_mb: int = 0

    def passed(self, seen: Observation, own_gpus: Collection[str] = ()) -> Iterator[str]:
        """Describe each limit that is exceeded; GPUs that the worker's own jobs use are exempt."""
        uses = {
            "the CPUs are used": (seen.cpu_percent, self.cpu_percent),
            "the memory is used": (seen.memory_percent, self.memory_percent),
            **{
                f"GPU {uuid} is used by others": (look.utilisation, self.gpu_percent)
                for uuid, look in seen.gpus.items()
                if uuid not in own_gpus
            },
        }
        for words, (percent, limit) in uses.items():
            if percent is not None and limit is not None and percent > limit:
                yield f"{words} to {percent:.0f}%, at most {limit:g}% is allowed"
        floors = {
            "memory": (seen.memory_free_mb, self.memory_reserve_mb),
            "disk": (seen.disk_free_mb, self.disk_floor_mb),
        }
        if seen.disk_fault:
            yield seen.disk_fault
            del floors["disk"]
        for what, (free, floor) in floors.items():
            if free < floor:
                left, least = size_text(free * MIB), size_text(floor * MIB)
                yield f"{left} of {what} free, {least} must stay free"


def limits_of(settings: MachineSettings) -> MachineLimits:
    """Return the limits that the operator has set."""
    return MachineLimits(
        settings.max_cpu_percent,
        settings.max_memory_percent,
        settings.max_gpu_percent,
        settings.memory_reserve_mb,
        settings.disk_floor_mb,
    )


class Observes(Protocol):
    """An observer of the machine."""

    def look(self, gpus: Iterable[str] = ()) -> Observation:
        """Return the state of the machine now."""

    def disk_free_mb(self) -> int:
        """Return the free disk space where jobs write, in MiB."""


class Admission(Loop):
    """Check the machine every `period_s` seconds; `reason` is why it takes no jobs, or "".

    Running jobs are left alone. The machine is constrained as soon as it passes a limit, until it
    has been within all limits for `cooldown_s` seconds.
    """

    name = "admission"
    shares = True

    def __init__(
        self,
        limits: MachineLimits,
        observer: Observes,
        *,
        period_s: float,
        cooldown_s: float,
        gpus: Collection[str] = (),
        own_gpus: Callable[[], Collection[str]] = tuple,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(period_s)
        self._limits = limits
        self._observer = observer
        self._cooldown_s = cooldown_s
        self._gpus = gpus
        self._own_gpus = own_gpus
        self._changed = changed
        self._clock = clock
        self._past_at = 0.0
        self._seen: Observation | None = None
        self._lock = Lock()
        self.reason = ""

    def begin(self) -> None:
        """Look once, so that there is an answer, and then periodically."""
        if self._limits.cpu_percent is not None:
            self._observer.look()
            self._ending.wait(min(self.period_s, SHORTEST_MEASUREMENT_S))
        self.step()
        self.share()

    @property
    def open(self) -> bool:
        """Return whether a new job may be taken; free disk is read now, as it changes fast."""
        if self.reason:
            return False
        has_disk = self._observer.disk_free_mb() >= self._limits.disk_floor_mb
        if not has_disk:
            self.wake()
        return has_disk

    def step(self) -> None:
        """Look once, and compare with the limits."""
        seen = self._observer.look(self._gpus)
        with self._lock:
            self._seen = seen
            before, self.reason = self.reason, self._constraint(seen)
        if bool(before) != bool(self.reason):
            if self.reason:
                log.warning("worker_constrained", reason=self.reason)
            else:
                log.info("worker_unconstrained")
            self._changed()

    def condition(self) -> dict[str, object]:
        """Return the machine's condition, and why it is constrained if it is, for JSON."""
        with self._lock:
            seen = {} if self._seen is None else self._seen.reported()
            return {**seen, "constrained": self.reason}

    def _constraint(self, seen: Observation) -> str:
        now = self._clock()
        if passed := "; ".join(self._limits.passed(seen, self._own_gpus())):
            self._past_at = now
            return passed
        if self.reason and now - self._past_at < self._cooldown_s:
            return f"within its limits again, which must last for {duration_text(self._cooldown_s)}"
        return ""

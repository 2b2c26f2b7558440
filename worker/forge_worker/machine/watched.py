"""The machine that a worker offers: devices, what jobs have of it, watches and condition."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from forge_schema.model.worker import Capacity

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.devices import Inventory
from forge_worker.loop import Bell
from forge_worker.machine import speed
from forge_worker.machine.admission import Admission, Observer, limits_of
from forge_worker.machine.gate import Gate
from forge_worker.machine.gate_check import MachineCheck
from forge_worker.machine.gpu_health import Faults, FaultWatch, Quarantine
from forge_worker.machine.gpu_meter import GpuMeter
from forge_worker.machine.gpu_pool import GpuPool
from forge_worker.machine.health import EngineHealth
from forge_worker.machine.locks import Locks
from forge_worker.machine.slots import Slots
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.settings.settings import WorkerSettings

UNSAFE = "the cloud recommends leaving this machine"


@dataclass
class Condition:
    """What the watches say; `unsafe` is set by a cloud notice, `leaving` by the worker.

    `blind` is why notices of the cloud cannot be seen, or "". The queue tells whether the worker is
    `suspected` of failing jobs: then it takes one at a time.
    """

    admission: Admission
    faults: Faults
    health: EngineHealth
    gate: Gate
    # How many jobs are not started yet.
    preparing: Callable[[], int]
    running: Callable[[], int] = int
    unsafe: bool = False
    suspected: bool = False
    leaving: bool = False
    blind: str = ""

    def room(self) -> int | None:
        """Return how many jobs the machine is fit for now; None: any number."""
        if self.unsafe or self.gate.reason or not self.admission.open:
            return 0
        room = self.health.room(self.preparing())
        alone = 1 - self.running() if self.suspected else None
        return room if alone is None else max(0, alone if room is None else min(room, alone))

    def reported(self) -> dict[str, object]:
        """Return it as JSON-compatible values."""
        reported = {**self.admission.condition(), **self.faults.condition()}
        why = (
            reported.get("constrained"),
            self.health.reason,
            self.gate.told(),
            UNSAFE if self.unsafe else "",
        )
        reported["constrained"] = "; ".join(str(reason) for reason in why if reason)
        if self.blind:
            reported["no_notices"] = self.blind
        if self.leaving:
            reported["draining"] = True
        return reported


class WatchedMachine:
    """The machine's devices and slots, and the `condition` that decides whether it takes jobs.

    `admission`, `health`, `gate` and `fault_watch` are loops. `speed` is None if it was never
    measured.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        docker: DockerRunner | None,
        *,
        attempts: Callable[[], Collection[LiveAttempt]],
        preparing: Callable[[], int],
        changed: Bell,
        engine_changed: Bell,
    ) -> None:
        """Detect the devices, and make the rest.

        Args:
            settings: the worker's settings.
            docker: the runner for containers, if there is one.
            attempts: returns the attempts that run now.
            preparing: returns how many of them have not started yet.
            changed: is rung when its load or its GPUs change what it takes.
            engine_changed: is rung when the container engine does.

        Raises:
            GpuMissing: the settings name a GPU that does not exist.
        """
        self.devices, self.meter = Inventory(settings.gpus), GpuMeter()
        self.speed = speed.kept(settings.worker_dir, self.devices)
        self.slots = _slots(settings, self.devices)
        self.faults = Faults(Quarantine(settings.worker_dir), self.slots, attempts, changed)
        watched = [gpu.uuid for gpu in self.devices.gpus if gpu.vendor == "nvidia"]
        self.fault_watch = FaultWatch(
            watched, self.meter, self.faults.add, look_s=settings.sample_s
        )
        self.health = EngineHealth(docker, changed=engine_changed.ring)
        self.gate = Gate(
            settings.worker_dir,
            before=settings.before_job,
            after=settings.after_job,
            limit_s=settings.gate_limit_s,
            check=_check(settings, self.meter, self.devices),
            changed=changed.ring,
        )
        self.admission = Admission(
            limits_of(settings),
            Observer(settings.worker_dir),
            period_s=settings.sample_s,
            cooldown_s=settings.cooldown_s,
            gpus=[gpu.uuid for gpu in self.devices.gpus],
            own_gpus=self.slots.gpus_lent,
            changed=changed.ring,
        )
        self.condition = Condition(
            self.admission,
            self.faults,
            self.health,
            self.gate,
            preparing,
            lambda: len(attempts()),
        )


def _check(settings: WorkerSettings, meter: GpuMeter, devices: Inventory) -> MachineCheck | None:
    if not settings.check_before_job:
        return None
    vram_mb = {gpu.uuid: gpu.vram_mb for gpu in devices.gpus if gpu.vendor == "nvidia"}
    floor_mb = settings.disk_floor_mb
    return MachineCheck(settings.worker_dir, meter, vram_mb, disk_floor_mb=floor_mb)


def _slots(settings: WorkerSettings, devices: Inventory) -> Slots:
    return Slots(
        Capacity(settings.cpus, settings.memory_mb, settings.disk_mb),
        GpuPool(devices.gpus, devices.use, Locks(settings.lock_dir)),
        max_jobs=settings.max_jobs,
        max_storing=settings.max_storing,
    )

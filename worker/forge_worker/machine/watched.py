"""The machine that a worker offers: devices, what jobs have of it, watches, health, condition."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock
from time import monotonic

import structlog
from forge_schema.model.quantities import counted, duration_text
from forge_schema.model.worker import Capacity

from forge_worker.attempt import LiveAttempt
from forge_worker.devices.inventory import Inventory
from forge_worker.files.rest import in_memory
from forge_worker.loop import Bell, Loop
from forge_worker.machine import speed
from forge_worker.machine.admission import Admission, Observer, limits_of
from forge_worker.machine.gate import Gate
from forge_worker.machine.gate_check import MachineCheck
from forge_worker.machine.gpu_health import Faults, FaultWatch, GpuMeter, Quarantine
from forge_worker.machine.locks import Locks
from forge_worker.machine.slots import GpuPool, Slots
from forge_worker.runners.docker.engine import engine_answers
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.engines import knock
from forge_worker.settings.settings import WorkerSettings

PERIOD_S = 10.0
# So many jobs in a row that could not be started are the machine's fault; one job, often, is not.
ROW = 3
# After each failure the worker pauses, longer each time, so that others can take the job.
REST_S = 10.0
LONGEST_REST_S = 300.0
AWAY = "the container engine does not answer"

UNSAFE = "the cloud recommends leaving this machine"

log = structlog.get_logger(__name__)


class EngineHealth(Loop):
    """Check that the container engine answers, and count the jobs in a row that did not start.

    `reason` is why the worker takes no jobs, or "". After too many, one job at a time is tried
    after each pause, until one starts.
    """

    name = "health"
    shares = True

    def __init__(
        self,
        docker: DockerRunner | None,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(PERIOD_S)
        self._docker = docker
        self._changed = changed
        self._clock = clock
        self._lock = Lock()
        self._engine = ""
        self._row: set[int] = set()
        self._why = ""
        self._rest_s = 0.0
        self._rests_until = clock()

    @property
    def reason(self) -> str:
        with self._lock:
            if self._engine or len(self._row) < ROW:
                return self._engine
            jobs, rest = counted(len(self._row), "job"), duration_text(self._rest_s)
            return (
                f"{jobs} in a row could not be started here, so one is tried every {rest};"
                f" the last: {self._why}"
            )

    def begin(self) -> None:
        """Check once before the first claim, and then periodically."""
        self.step()
        self.share()

    def room(self, preparing: int) -> int | None:
        """Return how many jobs may be claimed while `preparing` have not started; None: any."""
        if self._docker is not None and (self._engine or _away()):
            self.wake()
            return 0
        with self._lock:
            if self._clock() < self._rests_until:
                return 0
            return None if len(self._row) < ROW else max(0, 1 - preparing)

    def started(self) -> None:
        """Record that a job was started."""
        with self._lock:
            before, self._row = len(self._row), set()
            self._rests_until = self._clock()
        if before >= ROW:
            log.info("worker_healthy")
            self._changed()

    def failed(self, job: int, why: str) -> None:
        """Record that the machine could not start a job; its own image may be the reason."""
        with self._lock:
            self._row.add(job)
            self._why = why
            self._rest_s = min(REST_S * 2 ** min(len(self._row) - 1, 10), LONGEST_REST_S)
            self._rests_until = self._clock() + self._rest_s
        self.step()
        if len(self._row) >= ROW:
            log.warning("worker_unhealthy", reason=self.reason)
            self._changed()

    def step(self) -> None:
        """Check the engine, and renew the network isolation of its containers."""
        if self._docker is None:
            return
        before = self._engine
        self._engine = self._docker.obstacle() if engine_answers() else AWAY
        if before != self._engine:
            if self._engine:
                log.warning("worker_constrained", reason=self._engine)
            else:
                log.info("engine_back")
            self._changed()


def _away() -> bool:
    try:
        knock()
    except OSError:
        return True
    return False


@dataclass
class Condition:
    """What the watches say; `unsafe` is set by a cloud notice, `leaving` by the worker.

    `blind` is why notices of the cloud cannot be seen, or "". `in_memory` is the worker's folder,
    if it is on no disk. The queue tells whether the worker is
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
    in_memory: bool = False

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
            self.gate.condition(),
            UNSAFE if self.unsafe else "",
        )
        reported["constrained"] = "; ".join(str(reason) for reason in why if reason)
        if self.blind:
            reported["no_notices"] = self.blind
        if self.in_memory:
            reported["in_memory"] = True
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
            in_memory=in_memory(settings.worker_dir.stat().st_dev),
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

"""The parts of one attempt: its output, its usage and its phases."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from typing import TypeVar

import stamina
import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Phase
from forge_schema.storage import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    StoreUrlInvalid,
)

from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.clock import seconds
from forge_worker.gang.gathering import Gatherer
from forge_worker.gang.members import pace_of
from forge_worker.job_io.artifacts import ArtifactKeeper
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.job_io.logs import LogShipper
from forge_worker.job_io.metrics_tail import MetricsTail, Settling
from forge_worker.job_io.occasions import CheckpointRequest
from forge_worker.job_io.results import ResultFiles
from forge_worker.job_io.watches import DiskWatch
from forge_worker.job_runs.services import JobServices
from forge_worker.loop import Loop
from forge_worker.machine.gate import Gated
from forge_worker.machine.slots import MachineSlot
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.runner import Runner, visible

T = TypeVar("T")

HOPELESS = (KeyInvalid, ObjectMissing, ObjectTooLarge, StoreUrlInvalid)
PERIOD_S = 60.0
# Most jobs are prepared, and their output is stored, in less than this. Then the queue does not
# hear of these phases.
BRIEF_S = 0.1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an attempt waits: `store_s` seconds for the store and for this machine's disk.

    It waits for the database without limit: the lease watchdog ends what runs without it, and a
    result is worth waiting for. If the attempt was asked to stop before it ended, `store_s` applies
    too.
    """

    attempt: LiveAttempt
    store_s: float

    def __call__(self, step: Callable[[], T]) -> T:
        """Run a step, retrying where that may help; return its result or raise its last error."""
        began = monotonic()

        def may_pass(error: Exception) -> bool:
            waits = not self.attempt.lost and monotonic() - began < self._limit_s(error)
            return waits and not isinstance(error, HOPELESS)

        try:
            return step()
        except Exception as error:  # noqa: BLE001 - it is raised again below
            first = error
        for tried in stamina.retry_context(
            on=may_pass, attempts=None, timeout=None, wait_initial=0.2, wait_max=5
        ):
            with tried:
                # To make ready for another try takes longer than most steps.
                if tried.num == 1:
                    raise first
                answer = step()
        return answer

    def _limit_s(self, error: Exception) -> float:
        if isinstance(error, DatabaseUnreachable):
            ended = self.attempt.phase is Phase.FINISHING
            return inf if ended or self.attempt.stop is None else self.store_s
        return self.store_s if isinstance(error, StoreError | OSError) else 0.0


class PhaseReporter(Loop):
    """Reports phases in order, and retries while the database does not answer.

    The first phase tells the queue the attempt's `devices`, so with any it is not put off.
    """

    name = "phase"

    def __init__(self, attempt: LiveAttempt, gateway: Gateway, devices: Sequence[str]) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._gateway = gateway
        self._devices = devices
        # Each with the time from which on it is to be reported, even if another follows.
        self._untold: deque[tuple[Phase, float]] = deque()
        self._lock = Lock()

    def enter(self, phase: Phase) -> None:
        """Schedule a phase to be reported soon."""
        self._attempt.phase = phase
        brief = phase is Phase.FINISHING or (phase is Phase.PREPARING and not self._devices)
        # The queue has not been told yet that another agent has this job.
        if brief and not self._attempt.adopted:
            self._untold.append((phase, monotonic() + BRIEF_S))
            self.wake_in(BRIEF_S)
        else:
            self._untold.append((phase, 0.0))
            self.wake()

    def tell(self, phase: Phase) -> None:
        """Report a phase now, or do without if the database does not answer."""
        with self._lock, suppress(ForgeError):
            self._tell(phase)

    def idle(self) -> bool:
        return not self._untold or (len(self._untold) == 1 and self._left_s() > 0)

    def pause_s(self, most_s: float | None = None) -> float:
        pause_s, left_s = super().pause_s(most_s), self._left_s()
        return min(pause_s, left_s) if left_s > 0 else pause_s

    def step(self) -> None:
        """Report the phases not reported yet, and act on the answers."""
        with self._lock:
            while not self.idle() and not self._attempt.lost:
                if self._left_s() <= 0:
                    self._tell(self._untold[0][0])
                self._untold.popleft()

    def _tell(self, phase: Phase) -> None:
        attempt = self._attempt
        standing = self._gateway.report(
            attempt.fence, phase, devices=self._devices, adopted=attempt.adopted
        )
        attempt.adopted = False
        attempt.heed(standing)

    def _left_s(self) -> float:
        """Return how long the first phase that was not reported must last to be reported."""
        return self._untold[0][1] - monotonic() if self._untold else 0.0


class Parts:
    """One attempt and everything that its steps share, from preparation to its end.

    `stopped_for` is why the job was stopped; None until then. Later requests do not change it.
    At `grace_ends_s` a member of an ended run is killed, by `clock.seconds`.
    """

    def __init__(
        self, attempt: LiveAttempt, slot: MachineSlot, runner: Runner, services: JobServices
    ) -> None:
        self.attempt = attempt
        self.slot = slot
        self.runner = runner
        self.services = services
        self.objects = services.objects(attempt)
        objects, gateway = self.objects, services.gateway
        self.phases = PhaseReporter(attempt, gateway, slot.gpu_uuids)
        self.logs = LogShipper(attempt, objects, gateway, period_s=services.log_flush_s)
        self.metrics = MetricsTail(attempt, gateway)
        self.last_metrics = Settling(attempt, gateway, self.metrics)
        self.checkpoints = CheckpointSync(attempt, objects, gateway, slot.disk_mb)
        self.checkpoint_request = CheckpointRequest(attempt, self.checkpoints)
        self.artifacts = ArtifactKeeper(attempt, objects, gateway, slot.disk_mb)
        self.disk = DiskWatch(attempt, slot.disk_mb)
        self.findings = ResultFiles(attempt, gateway)
        self.usage = services.sampler.watch(attempt, slot.gpu_uuids)
        self.patiently = Patience(attempt, services.store_patience_s)
        # Only members of a gang have one.
        self._gatherer: Gatherer | None = None
        self.stopped_for: Stop | None = None
        self.grace_ends_s = inf

    @property
    def gatherer(self) -> Gatherer:
        """What brings a member together with the others of its run."""
        if self._gatherer is None:
            services, slot = self.services, self.slot
            device = services.host.accelerator if slot.gpu_uuids else "cpu"
            pace = pace_of(services.speed, device, slot.cpus)
            self._gatherer = Gatherer(
                self.attempt, services.gateway, slot, services.gangs, self.patiently, pace=pace
            )
        return self._gatherer

    def gated(self, code: int | None = None) -> Gated:
        """Return what the operator's programs are told of this attempt, and how its job ended."""
        attempt, slot = self.attempt, self.slot
        variables = {
            "FORGE_JOB_ID": str(attempt.fence.job_id),
            "FORGE_ATTEMPT": str(attempt.grant.attempt),
            "FORGE_OWNER": attempt.grant.owner,
            "FORGE_WORKER_NAME": self.services.host.worker,
            **visible(slot.gpu_uuids, slot.gpu_vendor),
        }
        if code is not None:
            variables["FORGE_EXIT_CODE"] = str(code)
        return Gated(slot.gpu_uuids, variables)

    def left_s(self) -> float | None:
        """Return how long to wait for calls that may hang, in seconds; None means without limit."""
        window = self.attempt.window
        return None if window is None else max(0.0, window.give_back_s - seconds())

    def keep(self, write: Callable[[], None]) -> None:
        """Save something for the agent that starts if this one is killed."""
        try:
            write()
        except OSError as error:
            log.warning("not_kept", job=self.attempt.fence.job_id, error=str(error))

    def close(self) -> None:
        """End everything that was started, whatever the state of the attempt."""
        self.services.sampler.let_go(self.usage)
        if self._gatherer is not None:
            self._gatherer.free()
        for loop in (self.logs, self.disk, self.phases):
            loop.end(self.left_s())

"""The parts of one attempt: its output, its usage and its phases."""

from collections.abc import Callable
from math import inf

import structlog

from forge_worker.attempt.attempt import Attempt, Stop
from forge_worker.attempt.patience import Patience
from forge_worker.clock import seconds
from forge_worker.gang.gathering import Gatherer
from forge_worker.gang.shares import pace_of
from forge_worker.job_io.artifacts import ArtifactKeeper
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.job_io.disk import DiskWatch
from forge_worker.job_io.logs import LogShipper
from forge_worker.job_io.metrics import MetricsTail, Settling
from forge_worker.job_io.occasions import CheckpointRequest
from forge_worker.job_io.results import Findings
from forge_worker.job_runs.phases import PhaseReporter
from forge_worker.job_runs.services import JobServices
from forge_worker.machine.slots import Slot
from forge_worker.runners.runner import Runner

log = structlog.get_logger(__name__)


class Parts:
    """One attempt and everything that its steps share, from preparation to its end.

    `stopped_for` is why the job was stopped; None until then. Later requests do not change it.
    At `grace_ends_s` a member of an ended run is killed, by `clock.seconds`.
    """

    def __init__(self, attempt: Attempt, slot: Slot, runner: Runner, services: JobServices) -> None:
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
        self.findings = Findings(attempt, gateway)
        self.usage = services.sampler.watch(attempt, slot.gpu_uuids)
        self.patiently = Patience(attempt, services.store_patience_s)
        device = services.host.accelerator if slot.gpu_uuids else "cpu"
        pace = pace_of(services.speed, device, slot.cpus)
        self.gatherer = Gatherer(attempt, gateway, slot, services.gangs, self.patiently, pace=pace)
        self.stopped_for: Stop | None = None
        self.grace_ends_s = inf

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
        self.gatherer.free()
        for loop in (self.logs, self.disk, self.phases):
            loop.end(self.left_s())

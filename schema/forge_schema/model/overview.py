"""How everything stands: the jobs, the workers, the sweeper."""

from datetime import datetime
from typing import Any

from pydantic import Field

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import Asked, Command, Phase, Reason, State, WorkerKind, WorkerStatus


class Oldest(Record):
    """The job that is ready for the longest; one that is paused only where nothing else waits."""

    job_id: int
    name: str
    owner: str
    queue: str
    paused: bool
    waited_s: float


class Minute(Record):
    """How many jobs ended how in one minute."""

    at: datetime
    succeeded: int
    failed: int
    cancelled: int
    dead: int

    @property
    def jobs(self) -> int:
        """How many ended in all."""
        return self.succeeded + self.failed + self.cancelled + self.dead


class Gpus(Record):
    """How many GPUs the workers have that are there, and how many of them are lent."""

    there: int
    busy: int


class Sweeper(Record):
    """When a sweeper was last here; `late_s` is for how long the most overdue job waits for one."""

    ticked_at: datetime | None = None
    silent_s: float | None = None
    late_s: float
    holds: bool
    healthy: bool


class RunningJob(Record):
    """A job that runs: `used` is its last sample, `metrics` the last numbers that it wrote."""

    job_id: int
    name: str
    owner: str
    queue: str
    attempt: int
    phase: Open[Phase]
    progress: float | None = None
    asked: Open[Asked] | None = None
    worker_id: int
    worker: str | None = None
    gpus: int
    elapsed_s: float
    used: dict[str, Any] | None = None
    metrics: dict[str, float] = Field(default_factory=dict)


class WorkerUse(Record):
    """A worker, how long it has been silent, and how its machine was when it was last heard."""

    id: int
    name: str
    kind: Open[WorkerKind]
    status: Open[WorkerStatus]
    command: Open[Command] | None = None
    cpus: float
    memory_mb: int
    gpus: int
    price_per_hour: float | None = None
    condition: dict[str, Any] = Field(default_factory=dict)
    silent_s: float
    leases: int


class Overview(Record):
    """How everything stands.

    `states` counts jobs that have not ended, `ended` those of the last hour, `throughput` the same
    by minute, the oldest first; `interruptions` counts attempts of the last day by reason.
    """

    at: datetime
    states: dict[Open[State], int]
    oldest: Oldest | None = None
    ended: dict[Open[State], int]
    throughput: list[Minute]
    gpus: Gpus
    fleet: dict[Open[WorkerStatus], int]
    cost_per_hour: float | None = None
    interruptions: dict[Open[Reason], int]
    sweeper: Sweeper
    jobs: list[RunningJob]
    workers: list[WorkerUse]

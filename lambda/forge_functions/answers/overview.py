"""What an answer holds of how everything stands."""

from datetime import datetime
from typing import Any

from forge_schema.model.states import Asked, Command, Phase, Reason, State, WorkerKind, WorkerStatus
from pydantic import BaseModel


class Oldest(BaseModel):
    """The job that is ready for the longest; one that is paused only where nothing else waits."""

    job_id: int
    name: str
    owner: str
    queue: str
    paused: bool
    waited_s: float


class Minute(BaseModel):
    """How many jobs ended how in one minute."""

    at: datetime
    succeeded: int
    failed: int
    cancelled: int
    dead: int


class Gpus(BaseModel):
    """How many GPUs the workers have that are there, and how many of them are lent."""

    there: int
    busy: int


class Sweeper(BaseModel):
    """When a sweeper was last here; `late_s` is for how long the most overdue job waits for one."""

    ticked_at: datetime | None
    silent_s: float | None
    late_s: float
    holds: bool
    healthy: bool


class RunningJob(BaseModel):
    """A job that runs: `used` is its last sample, `metrics` the last numbers that it wrote."""

    job_id: int
    name: str
    owner: str
    queue: str
    attempt: int
    phase: Phase
    progress: float | None
    asked: Asked | None
    worker_id: int
    worker: str | None
    gpus: int
    elapsed_s: float
    used: dict[str, Any] | None
    metrics: dict[str, float]


class WorkerUse(BaseModel):
    """A worker, how long it has been silent, and how its machine was when it was last heard."""

    id: int
    name: str
    kind: WorkerKind
    status: WorkerStatus
    command: Command | None
    cpus: float
    memory_mb: int
    gpus: int
    price_per_hour: float | None
    condition: dict[str, Any]
    silent_s: float
    leases: int


class Overview(BaseModel):
    """How everything stands.

    `states` counts jobs that have not ended, `ended` those of the last hour, `throughput` the same
    by minute; `interruptions` counts attempts of the last day by reason.
    """

    at: datetime
    states: dict[State, int]
    oldest: Oldest | None
    ended: dict[State, int]
    throughput: list[Minute]
    gpus: Gpus
    fleet: dict[WorkerStatus, int]
    cost_per_hour: float | None
    interruptions: dict[Reason, int]
    sweeper: Sweeper
    jobs: list[RunningJob]
    workers: list[WorkerUse]

"""The overview of jobs, workers and sweeper, and the rows of reports."""

from datetime import datetime
from typing import Any

from pydantic import Field

from forge_schema.compatibility import CountsDead
from forge_schema.model.fields import Answer, Open, Record, ShownCounts
from forge_schema.model.reading import report_rows
from forge_schema.model.states import Asked, Command, Phase, Reason, WorkerKind, WorkerStatus


class Oldest(Record):
    """The job that has been ready longest. It is a paused one only if no other waits."""

    job_id: int
    name: str
    owner: str
    queue: str
    paused: bool
    waited_s: float


class Minute(CountsDead, Record):
    """The number of jobs that ended in one minute, by outcome."""

    at: datetime
    succeeded: int
    failed: int
    cancelled: int

    @property
    def jobs(self) -> int:
        """The total number of jobs."""
        return self.succeeded + self.failed + self.cancelled + self.dead


class Gpus(Record):
    """The number of GPUs of online workers, and how many of them are in use."""

    there: int
    busy: int


class SweeperStatus(Record):
    """The sweepers' last tick; `late_s` is how overdue the most overdue job is, in seconds."""

    ticked_at: datetime | None = None
    silent_s: float | None = None
    late_s: float
    holds: bool
    healthy: bool


class RunningJob(Record):
    """A running job: `used` is its last sample, `metrics` the last values it wrote.

    On several machines, `workers` are all of them by rank, with so many `gpus` together; the rest
    is about rank 0.
    """

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
    nodes: int = 1
    workers: list[str] = Field(default_factory=list)
    gpus: int
    elapsed_s: float
    used: dict[str, Any] | None = None
    metrics: dict[str, float] = Field(default_factory=dict)


class WorkerUse(Record):
    """A worker, seconds since it was last heard from, and its machine's condition at that time."""

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
    """The overview of jobs, workers and sweeper.

    `states` counts jobs that have not ended, `awaiting_approval` those that are held until an admin
    approves them; `ended` counts those that ended in the last hour, and
    `throughput` the same by minute, oldest first; `interruptions` counts interrupted attempts of
    the last day by reason.
    """

    at: datetime
    states: ShownCounts
    awaiting_approval: int = 0
    oldest: Oldest | None = None
    ended: ShownCounts
    throughput: list[Minute]
    gpus: Gpus
    fleet: dict[Open[WorkerStatus], int]
    cost_per_hour: float | None = None
    interruptions: dict[Open[Reason], int]
    sweeper: SweeperStatus
    jobs: list[RunningJob]
    workers: list[WorkerUse]


class ReportRows(Answer):
    """The rows of a report."""

    items: list[dict[str, Any]]
    next: str | None = None

    @classmethod
    def of(cls, value: list[dict[str, Any]]) -> "ReportRows":
        """Make the answer."""
        return cls(items=value)

    def value(self) -> list[dict[str, Any]]:
        """Return the rows, with times parsed: `day`, `at`, `since` and names ending in `_at`."""
        return report_rows(self.items)

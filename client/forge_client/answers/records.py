"""What the client reads about jobs, attempts, files and workers."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

STATES = ("scheduled", "ready", "running", "succeeded", "failed", "cancelled", "dead")
TERMINAL = frozenset({"succeeded", "failed", "cancelled", "dead"})


class Record(BaseModel):
    """A row as the server tells it; a newer server may tell more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class JobStatus(Record):
    """Where a job is, or how it ended; `progress` is the share done, 0 to 1."""

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: str
    attempt: int
    reason: str | None = None
    asked: str | None = None
    exit_code: int | None = None
    detail: str | None = None
    phase: str | None = None
    progress: float | None = None
    worker: str | None = None
    run_at: datetime | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    bundle_digest: str | None = None

    @property
    def terminal(self) -> bool:
        """Whether the job has its outcome."""
        return self.state in TERMINAL


class JobDetail(JobStatus):
    """A job with what was asked for, and the checkpoint of another job that it started from.

    `due_in_s` is how soon a scheduled job may start; `retries_left` counts those after failures.
    """

    spec: dict[str, Any]
    source_job_id: int | None = None
    source_attempt: int | None = None
    source_number: int | None = None
    timeout_s: int | None
    max_failures: int
    max_losses: int
    max_preemptions: int
    due_in_s: float | None = None
    retries_left: int | None = None


class Attempt(Record):
    """A finished attempt: who ran it, for how long, and why it ended."""

    attempt: int
    rank: int
    worker: str | None
    reason: str
    exit_code: int | None
    detail: str | None
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime
    waited_s: float
    held_s: float
    devices: list[str]
    gpu_seconds: float
    cpu_seconds: float | None = None
    peak_memory_mb: int | None = None
    peak_vram_mb: int | None = None
    energy_j: float | None = None
    cost: float | None
    accepted: bool


class Event(Record):
    """One entry of the audit trail."""

    at: datetime
    actor: str
    action: str
    detail: dict[str, Any] | None


class Stored(Record):
    """An object of a job's; `url` is where to fetch it for a while, if it came over HTTP."""

    # Whoever has the URL has the object, so it is shown nowhere.
    job_id: int = Field(default=0, exclude=True, repr=False)
    url: str = Field(default="", exclude=True, repr=False)


class LogChunk(Stored):
    """A stored piece of output; `start` and `bytes` count uncompressed bytes."""

    token: int
    rank: int
    number: int
    attempt: int
    key: str
    start: int
    bytes: int
    sha256: str
    created_at: datetime | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the reading order."""
        return self.token, self.rank, self.number


class Artifact(Stored):
    """A file that a job left; `path` is relative, with forward slashes."""

    path: str
    key: str
    bytes: int
    sha256: str
    attempt: int


class Checkpoint(Record):
    """A complete checkpoint; the job's next attempt begins with the one that is `next`."""

    attempt: int
    number: int
    created_at: datetime
    age_s: float
    files: int
    bytes: int
    next: bool

    @property
    def name(self) -> str:
        """How `--from-checkpoint JOB:…` names it."""
        return f"{self.attempt}.{self.number}"


class WorkerInfo(Record):
    """A worker: what it has, and when it was last heard; memory and disk in MiB.

    `condition` is how its machine was then, and why it is `constrained` if it is.
    """

    id: int
    name: str
    kind: str
    status: str
    command: str | None
    accelerator: str
    gpus: list[dict[str, Any]]
    cpus: float
    memory_mb: int
    disk_mb: int
    labels: dict[str, str]
    version: str
    condition: dict[str, Any] = Field(default_factory=dict)
    silent_s: float
    leases: int


class Caller(Record):
    """Who asks: whose jobs are theirs, what they may do, how the audit trail calls them."""

    owner: str
    role: str
    actor: str


class Template(Record):
    """A named job config: `spec` holds the fields of a job as the queue wants them."""

    name: str
    spec: dict[str, Any]
    updated_at: datetime


class AuditEvent(Event):
    """One entry of the whole trail: what it was about, too."""

    job_id: int | None = None
    worker_id: int | None = None


class Key(Record):
    """An API key, without what is secret of it; `signed` ones take signed requests only."""

    id: str
    name: str
    owner: str
    role: str
    signed: bool
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class QueueInfo(Record):
    """A queue: what holds it back, what waits in it and what runs, and on how many GPUs.

    A limit that is None is none.
    """

    name: str
    paused: bool
    max_jobs: int | None = None
    max_gpus: int | None = None
    waiting: int
    running: int
    gpus: int


class Quota(Record):
    """What holds an owner's jobs back; twice the weight is twice the share."""

    owner: str
    max_jobs: int | None = None
    max_gpus: int | None = None
    weight: float = 1.0


class Standing(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Record):
    """One finding of `forge doctor`."""

    name: str
    standing: Standing
    detail: str
    hint: str = ""

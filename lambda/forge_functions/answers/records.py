"""What answers hold: rows, field by field, so that the OpenAPI document is exact."""

from datetime import datetime
from typing import Any, Generic, TypeVar

from forge_schema.database.pool import Row
from forge_schema.model.states import (
    Asked,
    Command,
    Phase,
    Reason,
    Role,
    State,
    WorkerKind,
    WorkerStatus,
)
from pydantic import BaseModel

T = TypeVar("T")
Rows = dict[str, list[Row]]
"""Items before they are checked against their model."""


class Items(BaseModel, Generic[T]):
    """A list."""

    items: list[T]


class Done(BaseModel):
    """It is done, and there is nothing to say."""


class JobStatus(BaseModel):
    """Where a job is, or how it ended; `progress` is the share done, 0 to 1."""

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: State
    attempt: int
    reason: Reason | None
    asked: Asked | None
    exit_code: int | None
    detail: str | None
    phase: Phase | None
    progress: float | None
    worker_id: int | None
    worker: str | None
    run_at: datetime | None
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    bundle_digest: str | None


class JobDetail(JobStatus):
    """A job with what was asked for, and the checkpoint of another job that it started from.

    `due_in_s` is how soon a scheduled job may start; `retries_left` counts those after failures.
    """

    spec: dict[str, Any]
    source_job_id: int | None
    source_attempt: int | None
    source_number: int | None
    timeout_s: int | None
    max_failures: int
    max_losses: int
    max_preemptions: int
    due_in_s: float | None
    retries_left: int | None


class Attempt(BaseModel):
    """A finished attempt: who ran it, for how long, and why it ended."""

    attempt: int
    rank: int
    token: int
    worker: str | None
    reason: Reason
    exit_code: int | None
    detail: str | None
    ready_at: datetime
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime
    waited_s: float
    held_s: float
    devices: list[str]
    gpu_seconds: float
    cpu_seconds: float | None
    peak_memory_mb: int | None
    peak_vram_mb: int | None
    energy_j: float | None
    cost: float | None
    accepted: bool


class Event(BaseModel):
    """One entry of the audit trail."""

    at: datetime
    actor: str
    action: str
    job_id: int | None = None
    worker_id: int | None
    token: int | None
    detail: dict[str, Any] | None


class LogChunk(BaseModel):
    """A stored piece of output, packed by zstd; `start` and `bytes` count unpacked bytes."""

    token: int
    rank: int
    number: int
    attempt: int
    key: str
    start: int
    bytes: int
    sha256: str
    created_at: datetime
    url: str


class Artifact(BaseModel):
    """A file that a job left; `path` is relative, with forward slashes."""

    path: str
    key: str
    bytes: int
    sha256: str
    attempt: int
    url: str


class Checkpoint(BaseModel):
    """A complete checkpoint; the job's next attempt begins with the one that is `next`."""

    attempt: int
    number: int
    created_at: datetime
    age_s: float
    files: int
    bytes: int
    next: bool


class Worker(BaseModel):
    """A worker: what it has, and when it was last heard; memory and disk in MiB.

    `condition` is how its machine was then, and why it is `constrained` if it is.
    """

    id: int
    name: str
    kind: WorkerKind
    status: WorkerStatus
    command: Command | None
    accelerator: str
    gpus: list[dict[str, Any]]
    cpus: float
    memory_mb: int
    disk_mb: int
    labels: dict[str, str]
    version: str
    condition: dict[str, Any]
    last_seen_at: datetime
    silent_s: float
    leases: int


class ApiKey(BaseModel):
    """An API key, without its secret; `signed` tells that its requests have to be."""

    id: str
    owner: str
    role: Role
    name: str
    signed: bool
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class Queue(BaseModel):
    """A queue's settings (a limit of null is none), what waits, what runs and on how many GPUs."""

    name: str
    paused: bool
    max_jobs: int | None
    max_gpus: int | None
    waiting: int
    running: int
    gpus: int


class Quota(BaseModel):
    """An owner's settings; a limit of null is none. Twice the weight is twice the share."""

    owner: str
    paused: bool
    max_jobs: int | None
    max_gpus: int | None
    weight: float


class Template(BaseModel):
    """A named job config."""

    name: str
    spec: dict[str, Any]
    updated_at: datetime

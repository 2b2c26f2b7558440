"""An explanation as the client reads it: why a job waits, where it would run, or how it ended."""

from datetime import datetime
from typing import Any

from pydantic import Field

from forge_client.answers.records import Record


class Requirement(Record):
    """One thing that a job asks for, against what a worker has; memory and disk in MiB.

    `met` is whether the idle worker has it; `free` is what it has free now, where that can change.
    """

    name: str
    wanted: Any
    has: Any
    met: bool
    free: Any = None


class WorkerChance(Record):
    """What one worker's next claim does about the job.

    `chance` is `starts`, `behind`, `reserved`, `busy`, `constrained`, `draining`, `stopping`,
    `offline`, `never_came` or `unfit`; `ahead` counts the jobs that it takes before this one.
    """

    worker_id: int
    worker: str
    chance: str
    text: str
    available: bool
    requirements: list[Requirement]
    lacking: list[str]
    ahead: int | None = None
    leases: int = 0
    silent_s: float = 0.0


class Limit(Record):
    """What holds the job back on every worker, by a `code`, a sentence and numbers."""

    code: str
    text: str
    used: int | None = None
    wanted: int | None = None
    limit: int | None = None
    until: datetime | None = None
    wait_s: float | None = None


class Remedy(Record):
    """A change that brings the start nearer.

    Those that are `needed` must all come true; of the others, one is enough. `changes` are fields
    of the job to submit instead, sizes in MiB.
    """

    code: str
    text: str
    needed: bool = False
    command: str | None = None
    changes: dict[str, Any] | None = None
    worker: str | None = None


class Estimate(Record):
    """How many seconds it may take until the job starts, and on what that rests."""

    wait_s: float
    basis: str


class Spending(Record):
    """One budget of retries; more used than granted ends the job."""

    budget: str
    used: int
    granted: int


class AttemptEnd(Record):
    """How one attempt ended, and which budget that was charged to."""

    attempt: int
    worker: str | None
    reason: str
    budget: str
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    held_s: float


class Run(Record):
    """Where the job runs, and what it asked for there."""

    worker_id: int
    worker: str | None
    phase: str
    asked: str | None
    waited_s: float
    held_s: float
    devices: list[str]
    requirements: list[Requirement]


class End(Record):
    """How the job ended, and what `forge retry` would do; `resumes` is its checkpoint then."""

    reason: str
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    budget: str
    retryable: bool
    retry: str
    resumes: str | None = None


class Explanation(Record):
    """Why a job is where it is.

    `outlook` is `running`, `ended`, `scheduled`, `held`, `starts`, `behind`, `busy`,
    `unavailable`, `unfit` or `no_worker`. `workers` come nearest first; `left_out` is how many
    more there are, and `counts` has all of them by their chance.
    """

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: str
    attempt: int
    outlook: str
    text: str
    limits: list[Limit] = Field(default_factory=list)
    ahead: int | None = None
    ahead_is_bound: bool = False
    workers: list[WorkerChance] = Field(default_factory=list)
    workers_in_all: int = 0
    left_out: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    remedies: list[Remedy] = Field(default_factory=list)
    estimate: Estimate | None = None
    run: Run | None = None
    end: End | None = None
    budgets: list[Spending] = Field(default_factory=list)
    attempts: list[AttemptEnd] = Field(default_factory=list)

"""What an explanation says: why a job waits, where it would run, or how it ended.

Every part has a `code`, which stays, the numbers, and a sentence for people.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import Field, JsonValue

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import Asked, Budget, Phase, Reason, State


class Outlook(StrEnum):
    """What stands between a job and its start, in one word; the first that applies."""

    RUNNING = "running"
    ENDED = "ended"
    SCHEDULED = "scheduled"
    HELD = "held"
    STARTS = "starts"
    BEHIND = "behind"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    UNFIT = "unfit"
    NO_WORKER = "no_worker"


class Chance(StrEnum):
    """What one worker's next claim does about a job that no limit holds.

    `starts` takes it; `behind` takes others first; `reserved` keeps its room for another; `busy`
    has too little free; `unfit` does not meet the requirements, even when idle. The
    others take no jobs at all.
    """

    STARTS = "starts"
    BEHIND = "behind"
    RESERVED = "reserved"
    BUSY = "busy"
    CONSTRAINED = "constrained"
    DRAINING = "draining"
    STOPPING = "stopping"
    OFFLINE = "offline"
    NEVER_CAME = "never_came"
    UNFIT = "unfit"


class Requirement(Record):
    """One thing that a job asks for, against what a worker has; memory and disk in MiB.

    `name` is `cpus`, `memory_mb`, `disk_mb`, `accelerator`, `gpus`, `gpu_model`, `vram_mb`,
    `target`, `nodes`, or `label:` and a label's name. `met` is whether the idle worker has it;
    `free` is what it has free now, where that can change.
    """

    name: str
    wanted: JsonValue
    has: JsonValue
    met: bool
    free: JsonValue = None


class WorkerChance(Record):
    """One worker's chance. `ahead` counts the jobs that it takes before this one.

    `leases` is how many jobs it runs; `available` is false for one that takes no jobs.
    """

    worker_id: int
    worker: str
    chance: Open[Chance]
    text: str
    available: bool
    requirements: list[Requirement]
    lacking: list[str]
    ahead: int | None = None
    leases: int = 0
    silent_s: float = 0.0


class Limit(Record):
    """What holds a job back on every worker.

    `code` is `queue_paused`, `owner_paused`, `queue_jobs`, `queue_gpus`, `owner_jobs`,
    `owner_gpus`, `backing_off`, `delayed` or `due`. Of a quota, `used` and `wanted` together are
    more than `limit`; `until` is when a time is over, `wait_s` how many seconds that is from now.
    """

    code: str
    text: str
    used: int | None = None
    wanted: int | None = None
    limit: int | None = None
    until: datetime | None = None
    wait_s: float | None = None


class Remedy(Record):
    """A change that brings the start nearer.

    Those that are `needed` must all come true; of the others, one is enough. `command` is what to
    type, where a command does it; `changes` are the fields of the job to submit instead, as
    `JobSpec` and its resources name them (a label of null is left out).
    """

    code: str
    text: str
    needed: bool = False
    command: str | None = None
    changes: dict[str, JsonValue] | None = None
    worker: str | None = None


class Estimate(Record):
    """How long it may take until the job starts, and on what that rests."""

    wait_s: float
    basis: str


class Spending(Record):
    """One budget of retries: `used` of `granted` are gone; one more than granted ends the job."""

    budget: Open[Budget]
    used: int
    granted: int


class AttemptEnd(Record):
    """How one attempt ended."""

    attempt: int
    worker: str | None
    reason: Open[Reason]
    budget: Open[Budget]
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    held_s: float


class Run(Record):
    """Where a job runs now, and what it asked for there."""

    worker_id: int
    worker: str | None
    phase: Open[Phase]
    asked: Open[Asked] | None
    waited_s: float
    held_s: float
    devices: list[str]
    requirements: list[Requirement]


class End(Record):
    """How a job ended, and what `forge retry` would do; `resumes` is its checkpoint then."""

    reason: Open[Reason]
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    budget: Open[Budget]
    retryable: bool
    retry: str
    resumes: str | None = None


class Explanation(Record):
    """Why a job is where it is.

    `workers` come nearest first; `left_out` is how many more there are, and `counts` has all of
    them by their chance. `ahead` is the fewest that go before it on any worker that has room.
    """

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: Open[State]
    attempt: int
    outlook: Open[Outlook]
    text: str
    limits: list[Limit] = Field(default_factory=list)
    ahead: int | None = None
    ahead_is_bound: bool = False
    workers: list[WorkerChance] = Field(default_factory=list)
    workers_in_all: int = 0
    left_out: int = 0
    counts: dict[Open[Chance], int] = Field(default_factory=dict)
    remedies: list[Remedy] = Field(default_factory=list)
    estimate: Estimate | None = None
    run: Run | None = None
    end: End | None = None
    budgets: list[Spending] = Field(default_factory=list)
    attempts: list[AttemptEnd] = Field(default_factory=list)

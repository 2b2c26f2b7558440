"""The parts of an explanation: why a job waits, where it would run, or how it ended.

Every part has a stable `code`, numbers, and a sentence for people.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import Field, JsonValue

from forge_schema.model.fields import Open, Record, ShownState
from forge_schema.model.job import Approval, Firing
from forge_schema.model.states import Asked, Budget, Phase, Reason, in_state


class Outlook(StrEnum):
    """What keeps a job from starting, in one word; the first that applies."""

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
    """How one worker's next claim treats a job that no limit holds back.

    `starts` takes it; `behind` takes others first; `reserved` keeps its room for another job;
    `avoided` leaves it to other workers for a while, since it failed there, or prefers spot
    machines; `busy` has too little
    free; `unfit` does not meet the requirements even when idle. Workers with the other values take
    no jobs at all.
    """

    STARTS = "starts"
    BEHIND = "behind"
    RESERVED = "reserved"
    AVOIDED = "avoided"
    BUSY = "busy"
    CONSTRAINED = "constrained"
    DRAINING = "draining"
    STOPPING = "stopping"
    OFFLINE = "offline"
    NEVER_CAME = "never_came"
    UNFIT = "unfit"


class Requirement(Record):
    """One requirement of a job compared with a worker; memory and disk in MiB.

    `name` is `cpus`, `memory_mb`, `disk_mb`, `accelerator`, `gpus`, `gpu_model`, `vram_mb`,
    `target`, `address`, or `label:` and a label's name. `label:forge.spot` is whether it is a spot
    machine, `label:forge.max_price` its price per hour. `met` tells whether the idle worker has it;
    `free` is what is free now, if that can change.
    """

    name: str
    wanted: JsonValue
    has: JsonValue
    met: bool
    free: JsonValue = None


class WorkerChance(Record):
    """How one worker treats the job. `ahead` counts the jobs that it takes before this one.

    `leases` is the number of jobs it runs; `available` is false if it takes no jobs. Of the idle
    workers with room for the job, the one with the least `price_per_hour` for its speed is woken
    first, of these the one with the highest `preference`, and then the one with the highest
    `speed`: between 0 and 1, and 0 if it was not measured.
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
    preference: int = 0
    speed: float = 0.0
    price_per_hour: float | None = None


class Limit(Record):
    """A limit that holds a job back on every worker.

    `code` is `queue_paused`, `budget`, `team_budget`, `queue_jobs`, `queue_gpus`, `owner_jobs`,
    `owner_gpus`, `team_jobs`, `team_gpus`, `backing_off`, `delayed`, `due`, `turn`, `approval`, or
    the kind of a dependency, for which `jobs` are the jobs waited for. For `turn`, `before` jobs of
    the sweep go first; for `approval`, that is what an admin has to approve. If it limits what runs
    at once, `used` and `wanted` together exceed `limit`. If it is a delay, or a budget
    that is spent, it ends at `until`, in `wait_s` seconds.
    """

    code: str
    text: str
    used: int | None = None
    wanted: int | None = None
    limit: int | None = None
    until: datetime | None = None
    wait_s: float | None = None
    jobs: list[int] = Field(default_factory=list)
    before: int | None = None
    approval: Approval | None = None


class Remedy(Record):
    """A change that would help the job to start.

    All changes that are `needed` must be made; of the others, one is enough. `command` is the
    command that makes the change, if there is one. `changes` are the fields of a job to submit
    instead, named as in `JobSpec` and its resources (a null label is removed).
    """

    code: str
    text: str
    needed: bool = False
    command: str | None = None
    changes: dict[str, JsonValue] | None = None
    worker: str | None = None


class Estimate(Record):
    """An estimate of the time until the job starts, and its basis."""

    wait_s: float
    basis: str


class Spending(Record):
    """One budget of retries: `used` of `granted`. One more than granted ends the job."""

    budget: Open[Budget]
    used: int
    granted: int


class AttemptEnd(Record):
    """The end of one attempt, which had begun with a checkpoint of the job, if it has one.

    If that checkpoint is `blamed` for a failure, the failure is not charged.
    """

    attempt: int
    worker: str | None
    reason: Open[Reason]
    budget: Open[Budget]
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    held_s: float
    begun_with: str | None = None
    blamed: bool = False


class CurrentAttempt(Record):
    """Where a job runs now: the worker of rank 0, all `workers` by rank, and their requirements.

    A gang runs on `nodes` machines, and could on `max_nodes`. Its newest checkpoint was stored
    `saved_s` seconds ago; None if there is none. Its worker `silent` should have been heard from
    since `silent_s` seconds ago, and its lease ends in `expires_s`.
    """

    worker_id: int
    worker: str | None
    workers: list[str] = Field(default_factory=list)
    phase: Open[Phase]
    asked: Open[Asked] | None
    waited_s: float
    held_s: float
    devices: list[str]
    requirements: list[Requirement]
    nodes: int = 1
    max_nodes: int = 1
    saved_s: float | None = None
    silent: str | None = None
    silent_s: float | None = None
    expires_s: float | None = None


class JobEnd(Record):
    """How a job ended, and what `forge retry` would do, from the checkpoint `resumes`."""

    reason: Open[Reason]
    exit_code: int | None
    detail: str | None
    finished_at: datetime
    budget: Open[Budget]
    retryable: bool
    retry: str
    resumes: str | None = None


class Explanation(Record):
    """Why a job is in its state.

    `workers` has the best match first; `left_out` is how many more there are; `counts` has all of
    them by chance. `ahead` is the smallest number of jobs before it on any worker with room.
    Of a gang, which needs `nodes` machines and takes up to `max_nodes`, so many are `free`.
    `begins` tells with which checkpoint the attempt begins that runs or is next, if it is not the
    newest, and why. `near_queue` is another of the owner's that is perhaps meant by a new one.
    """

    def __str__(self) -> str:
        return f"job {self.job_id} {self.name!r} {in_state(self.state)}: {self.text}"

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: ShownState
    attempt: int
    outlook: Open[Outlook]
    text: str
    firing: Firing | None = None
    limits: list[Limit] = Field(default_factory=list)
    nodes: int = 1
    max_nodes: int = 1
    free: int | None = None
    ahead: int | None = None
    ahead_is_bound: bool = False
    near_queue: str = ""
    workers: list[WorkerChance] = Field(default_factory=list)
    workers_in_all: int = 0
    left_out: int = 0
    counts: dict[Open[Chance], int] = Field(default_factory=dict)
    remedies: list[Remedy] = Field(default_factory=list)
    estimate: Estimate | None = None
    run: CurrentAttempt | None = None
    end: JobEnd | None = None
    budgets: list[Spending] = Field(default_factory=list)
    attempts: list[AttemptEnd] = Field(default_factory=list)
    begins: str = ""

"""A job: its status, request, attempts and events."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import Field, model_validator

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import (
    MOST_TAGS,
    OF_TAGS,
    TAG,
    Answer,
    NotFinite,
    Open,
    Record,
    ShownState,
)
from forge_schema.model.quantities import counted
from forge_schema.model.reading import LARGEST, ApprovalReading, JobReading, MemberReading
from forge_schema.model.states import (
    Asked,
    DependencyKind,
    Phase,
    Reason,
    State,
    StateWord,
    WaitsFor,
    in_state,
)

KEY_TIME = "%Y-%m-%dT%H:%M:%SZ"
# How many workers an explanation of a job describes, unless told otherwise, and at most.
EXPLAINED, MOST_EXPLAINED = 20, 500
LONGEST_NOTE = 5_000
# How many running jobs and workers an overview lists at most.
MOST_SHOWN = 200
# Fields that belong to one job, so no config can have them.
OWN = ("owner", "idempotency_key")
FIRING_KEY = re.compile(r"schedule:\d+:(?P<due>[\dT:-]{19}Z):(?P<name>.+)", re.ASCII)


class Approval(ApprovalReading, Record):
    """What an admin has to approve before a job may start.

    `gpu_hours` and `cost` are the most that one attempt of the job may spend, `all_gpu_hours` and
    `all_cost` the most that all `jobs` of its request may: null if there is no limit because the
    job has no `timeout_s`, or, of the cost, if no worker that could run it has a price. The owner
    may spend `most_gpu_hours` and `most_cost` a request without asking, null for any amount; unless
    `most_cost` is set, no cost is computed.
    """

    timeout_s: int | None
    jobs: int
    gpu_hours: float | None
    all_gpu_hours: float | None
    cost: float | None
    all_cost: float | None
    most_gpu_hours: float | None
    most_cost: float | None


class JobStatus(JobReading, Record):
    """The state of a job; `progress` is the fraction done, 0 to 1.

    `waits_for` is set while it is held; `approval` is what it waits for an admin to approve. It
    needs `nodes` machines, and while it runs, `workers` are those that run it, by rank. It belongs
    to an `experiment`, and to a benchmark, its `sweep`, if they are set. A failed job is
    `exhausted` if it had no retries left, and not if another would have failed as well. While it
    waits, so many machines are `kept` for it. People gave it `tags` and a `note`, and lists leave
    it out if it is `archived`.
    """

    job_id: int
    name: str
    owner: str
    queue: str
    priority: int
    state: ShownState
    attempt: int
    reason: Open[Reason] | None = None
    asked: Open[Asked] | None = None
    exit_code: int | None = None
    detail: str | None = None
    phase: Open[Phase] | None = None
    progress: float | None = None
    worker_id: int | None = Field(default=None, repr=False)
    worker: str | None = None
    run_at: datetime | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    bundle_digest: str | None = None
    waits_for: list[Open[WaitsFor]] | None = None
    approval: Approval | None = None
    nodes: int = 1
    workers: list[str] = Field(default_factory=list)
    sweep: str | None = None
    experiment: str | None = None
    exhausted: bool = False
    kept: int = 0
    tags: list[str] = Field(default_factory=list)
    note: str | None = None
    archived: bool = False

    def __str__(self) -> str:
        return f"job {self.job_id} {self.name!r} {in_state(self.state)}"

    @model_validator(mode="before")
    @classmethod
    def _tell_exhausted(cls, values: Any) -> Any:  # noqa: ANN401 - as pydantic
        """Read it from the queue's own state, which is not shown."""
        if isinstance(values, Mapping) and values.get("state") == State.DEAD:
            return {**values, "exhausted": True}
        return values


class ListedJob(JobStatus):
    """A job in a list: `ran_s` is how long its current or last attempt has run, in seconds.

    `metrics` has a few of the last numbers that it wrote to its metrics file. A job is `unservable`
    if it is ready and no online worker could run it.
    """

    ran_s: float | None = None
    metrics: dict[str, float | NotFinite] = Field(default_factory=dict)
    unservable: bool = False


class FoundJobs(Record):
    """Jobs that match a filter, and the id below which no job was looked at; None if all were."""

    items: list[ListedJob]
    before: int | None = None


class Dependency(Record):
    """Another job that a job waits for; `met` is None while it does."""

    job_id: int
    kind: Open[DependencyKind]
    met: bool | None = None


class Firing(Record):
    """The schedule that submitted a job, and the time for which it did."""

    schedule: str
    due_at: datetime

    def key(self, schedule_id: int) -> str:
        """Return the job's idempotency key: for each time, a schedule submits one job."""
        return f"schedule:{schedule_id}:{self.due_at.astimezone(UTC):{KEY_TIME}}:{self.schedule}"

    @classmethod
    def of(cls, key: str | None) -> Self | None:
        """Return what a job's idempotency key tells; None if no schedule submitted it."""
        match = FIRING_KEY.fullmatch(key or "")
        if match is None:
            return None
        try:
            due_at = datetime.strptime(match["due"], KEY_TIME).replace(tzinfo=UTC)
        except ValueError:
            return None  # a user may have chosen a key like this
        return cls(schedule=match["name"], due_at=due_at)


class RunMember(MemberReading, Record):
    """One rank of a job that runs on several machines; `reason` is set once it is over.

    `step` is 0 while it prepares, 1 once it waits for the others, 2 once it reaches the master.
    """

    rank: int
    worker: str | None = None
    phase: Open[Phase]
    step: int = 0
    reason: Open[Reason] | None = None
    exit_code: int | None = None


class JobDetail(JobStatus):
    """A job with its request, and the checkpoint of another job that it started from, if any.

    `team` is that of its owner now.
    `dependencies` are the jobs that it waits for or waited for. `due_in_s` is the time until a
    scheduled job may start, in seconds; `retries_left` counts the retries after failures. `firing`
    is set if a schedule submitted it. `members` are the ranks of a job on several machines. The
    newest checkpoint was stored `saved_s` seconds ago. Its current or last attempt has run for
    `ran_s` seconds. `cost` is what it has cost so far, null if no worker had a price.
    """

    spec: dict[str, Any]
    team: str | None = None
    source_job_id: int | None = None
    source_attempt: int | None = None
    source_number: int | None = None
    timeout_s: int | None
    max_failures: int
    max_losses: int
    max_preemptions: int
    due_in_s: float | None = None
    retries_left: int | None = None
    dependencies: list[Dependency] = Field(default_factory=list)
    firing: Firing | None = None
    members: list[RunMember] = Field(default_factory=list)
    saved_s: float | None = None
    ran_s: float | None = None
    cost: float | None = None


class Attempt(Record):
    """A finished attempt: its worker, its times, and why it ended."""

    attempt: int
    rank: int
    token: int = Field(repr=False)
    worker: str | None
    reason: Open[Reason]
    exit_code: int | None
    detail: str | None
    ready_at: datetime = Field(repr=False)
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
    """One entry of the audit trail. In the trail of one job, the job's id is left out."""

    at: datetime
    actor: str
    action: str
    job_id: int | None = None
    worker_id: int | None
    token: int | None = Field(repr=False)
    detail: dict[str, Any] | None


class Template(Record):
    """A template: `spec` holds the fields of a job as the queue takes them."""

    name: str
    spec: dict[str, Any]
    updated_at: datetime


class RegisteredInput(Record):
    """The source of an input, which jobs of its owner may call by this name."""

    name: str
    source: str
    updated_at: datetime


class Schedule(Record):
    """A job that is submitted at each time of a cron expression.

    `next_times` are the next three. `error` says why no job was submitted at the last time,
    `last_due_at`. Without `overlap`, none is submitted while the last job is unfinished.
    """

    owner: str
    name: str
    cron: str
    timezone: str
    paused: bool
    overlap: bool
    next_times: list[datetime]
    last_due_at: datetime | None = None
    last_job_id: int | None = None
    last_state: ShownState | None = None
    error: str | None = None
    spec: dict[str, Any]


class JobNamed(Answer):
    """The job's id."""

    job_id: int


class Statuses(Answer):
    """The status of each job."""

    items: list[JobStatus]
    next: str | None = None

    @classmethod
    def of(cls, value: Mapping[int, JobStatus]) -> Self:
        """Make the answer."""
        return cls(items=list(value.values()))

    def value(self) -> dict[int, JobStatus]:
        """Return the jobs by id."""
        return {job.job_id: job for job in self.items}


class Acted(Record):
    """What each job `became`: `changed` or `deleted`, now or before; or why it was left alone.

    It has not ended (`unended`), would have more tags than a job may (`full`), is `needed_by` an
    unfinished job, is being changed (`busy`), or does not exist (`absent`).
    """

    became: dict[int, str]
    needed_by: dict[int, int] = Field(default_factory=dict)


class AnnotationInvalid(ForgeError):
    """A text cannot be a tag, or a note is too long."""


class JobUnknown(ForgeError):
    """There is no job of this id."""


class IdempotencyConflict(ForgeError):
    """An idempotency key was used before, for another job."""


class StateUnknown(ForgeError):
    """A word is not a job state."""


def job_unknown(job_id: int) -> JobUnknown:
    """Return the error for a job that does not exist."""
    return JobUnknown(
        f"there is no job {job_id}", hint="`forge ps` lists the jobs; retention may have removed it"
    )


def checked_tags(tags: Sequence[str]) -> list[str]:
    """Return texts that can all be tags.

    Raises:
        AnnotationInvalid: one cannot, or there are too many.
    """
    wrong = next((tag for tag in tags if not re.fullmatch(TAG, tag)), None)
    if wrong is not None:
        raise AnnotationInvalid(f"{wrong!r} cannot be a tag", hint=OF_TAGS)
    if len(tags) > MOST_TAGS:
        raise AnnotationInvalid(f"{len(tags)} tags are too many", hint=f"give at most {MOST_TAGS}")
    return list(tags)


def checked_note(note: str | None) -> str | None:
    """Return a text that can be a note.

    Raises:
        AnnotationInvalid: it is too long, or has a NUL character.
    """
    if note is not None and (len(note) > LONGEST_NOTE or "\0" in note):
        raise AnnotationInvalid(
            f"a note has at most {counted(LONGEST_NOTE, 'character')}, and no NUL",
            hint="shorten it",
        )
    return note


def possible_job(job_id: int) -> int:
    """Return an id that a job could have; `JobUnknown` if no job could."""
    if not 0 < job_id <= LARGEST:
        raise job_unknown(job_id)
    return job_id


def with_shares(payload: Mapping[str, Any], lent: Mapping[str, float | None]) -> dict[str, Any]:
    """Return a stored payload with each share replaced by what is lent; None keeps the share."""
    resources = payload.get("resources", {})
    shares = {name: lent.get(name) for name, value in resources.items() if value is None}
    return {**payload, "resources": {**resources, **shares}} if shares else dict(payload)


def job_states(words: Sequence[str]) -> list[State]:
    """Return the queue's own states that words stand for; `StateUnknown` if one is neither."""
    known = {word.value: word.states for word in StateWord}
    if unknown := set(words) - set(known):
        raise StateUnknown(
            f"{min(unknown)!r} is not a job state", hint=f"choose one of {', '.join(StateWord)}"
        )
    return [state for word in words for state in known[word]]

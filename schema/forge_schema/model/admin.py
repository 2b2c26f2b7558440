"""Models of queues, owners' limits, API keys and callers."""

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, model_validator

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import (
    NUMERIC,
    Answer,
    Count,
    Flag,
    KnownFields,
    Number,
    Open,
    Record,
    Text,
    Word,
)
from forge_schema.model.job import Approval
from forge_schema.model.states import Role, StateWord

# Whoever needs more than this is better without a limit. Its default is not null: it stays.
Spending = Annotated[
    Annotated[Number, Field(ge=0, le=1e12)] | None,
    Field(json_schema_extra=lambda schema: schema.pop("default", None)),
]
# Like the above, it stays where it is left out.
Guaranteed = Annotated[
    Count | None, Field(json_schema_extra=lambda schema: schema.pop("default", None))
]
Preemption = Literal["never", "higher-priority"]


class QueueInfo(Record):
    """A queue: settings (a null limit means none), waiting and running jobs, and GPUs in use."""

    name: str
    paused: bool
    max_jobs: int | None = None
    max_gpus: int | None = None
    waiting: int
    running: int
    gpus: int
    preemption: str = "never"
    preempts_after_s: int = 60
    most_preempted: int = 4
    guaranteed_gpus: int | None = None


class QueueSettings(KnownFields):
    """All settings of a queue. By default it is not paused and has no limits.

    With the `preemption` `higher-priority`, its jobs that have run for `preempts_after_s` seconds
    leave for waiting ones of a higher priority, at most `most_preempted` at once. Within its
    `guaranteed_gpus`, its waiting jobs have those of others leave that use more than their own.
    """

    paused: Flag = False
    max_jobs: Count | None = None
    max_gpus: Count | None = None
    guaranteed_gpus: Guaranteed = None
    preemption: Preemption = "never"
    preempts_after_s: Annotated[int, Field(ge=0, le=2_592_000), NUMERIC] = 60
    most_preempted: Annotated[int, Field(ge=1, le=10_000), NUMERIC] = 4


class QueueChanges(QueueSettings):
    """Some settings of a queue. Those left out stay; a null limit means none."""

    paused: Annotated[Flag, Field(json_schema_extra=lambda schema: schema.pop("default", None))] = (
        False
    )


# What happens once a budget is spent: it is told; nothing starts; and what runs goes too.
WhenSpent = Literal["warn", "hold", "preempt"]


class _OfOwner(BaseModel):
    """A null limit means none; twice the weight is twice the share.

    A request that may spend more than `approve_gpu_hours` or `approve_cost` waits for an approval.
    Once the jobs of a month have used `gpu_hours_per_month` or `cost_per_month`, it is `when_spent`
    that happens. Months are those of UTC. Within `guaranteed_gpus`, waiting jobs have those of
    others leave that use more than their own.
    """

    max_jobs: Count | None = None
    max_gpus: Count | None = None
    guaranteed_gpus: Guaranteed = None
    weight: Annotated[Number, Field(ge=0.001, le=1000)] = 1.0
    approve_gpu_hours: Spending = None
    approve_cost: Spending = None
    gpu_hours_per_month: Spending = None
    cost_per_month: Spending = None
    when_spent: Annotated[
        WhenSpent, Field(json_schema_extra=lambda schema: schema.pop("default", None))
    ] = "hold"


class OwnerSettings(KnownFields, _OfOwner):
    """All settings of an owner. By default there are no limits, and the weight is 1.

    A request that may spend more GPU-hours or money than `approve_…` waits for an approval. Once
    what runs in a month has used `…_per_month`, nothing starts until the next one, or as
    `when_spent` says. All these stay as they are if they are left out; null means no limit.
    """


class OwnerLimits(Record, _OfOwner):
    """An owner with their settings.

    With a budget, what was `used_…` in this month until the last minute, and since when it is
    spent. While nothing of the owner starts for that, the owner is `paused`.
    """

    owner: str
    paused: bool = Field(repr=False)
    used_gpu_hours: float | None = None
    used_cost: float | None = None
    spent_at: datetime | None = None


class _OfTeam(BaseModel):
    """What all owners of a team together may have, or are guaranteed; null means no limit."""

    max_jobs: Count | None = None
    max_gpus: Count | None = None
    guaranteed_gpus: Guaranteed = None
    gpu_hours_per_month: Spending = None
    cost_per_month: Spending = None
    when_spent: WhenSpent = "hold"


class Team(Record, _OfTeam):
    """A team and its owners; an owner is in one team at most.

    `used_…` is what the jobs of its owners used in this month, if it has a budget, and `spent_at`
    since when that is spent.
    """

    name: str
    owners: Sequence[str] = ()
    used_gpu_hours: float | None = None
    used_cost: float | None = None
    spent_at: datetime | None = None


class TeamMember(Record):
    """An owner in a team, or one that only sees it: the roles, and the jobs of now.

    `by_issuer` is whether single sign-on put the owner there.
    """

    owner: str
    is_member: bool = True
    by_issuer: bool = False
    roles: Sequence[Open[Role]] = ()
    waiting: int = 0
    running: int = 0
    gpus: int = 0
    max_jobs: int | None = None
    max_gpus: int | None = None
    gpu_hours_per_month: float | None = None
    cost_per_month: float | None = None
    used_gpu_hours: float | None = None
    used_cost: float | None = None


class TeamStatus(Team):
    """A team with its limits and `members`, and those who see its jobs without being in it."""

    members: Sequence[TeamMember] = ()


class TeamChanges(KnownFields, _OfTeam):
    """Owners who `join` a team, and leave the one before; who `leave` it; and some of its limits.

    Limits that are left out stay, null means none. They hold for all owners of the team together,
    and each owner's own in addition to them.
    """

    join: Annotated[Sequence[Text], Field(max_length=1000)] = ()
    leave: Annotated[Sequence[Word], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _no_owner_in_both(self) -> Self:
        if both := sorted({*self.join} & {*self.leave}):
            raise ValueError(f"{both[0]} cannot join and leave at once")
        return self


class AwaitingApproval(Record):
    """A job that waits for an admin's approval."""

    job_id: int
    name: str
    owner: str
    queue: str
    sweep: str | None = None
    submitted_at: datetime
    approval: Approval

    @property
    def state(self) -> StateWord:
        """Its state, as in `JobStatus`."""
        return StateWord.HELD


class Approved(Record):
    """How many jobs are `approved`, now or before; needed no approval or ended without it; are not.

    `became` has the same of each, by its id.
    """

    approved: int
    unasked: int
    absent: int
    became: dict[int, str]


class NotAPerson(ForgeError):
    """A line of a list of people cannot be read."""

    code = "option_invalid"


def people_of(text: str) -> list[tuple[int, str, str | None]]:
    """Return the people of a list, OWNER or OWNER TEAM a line, with the numbers of their lines.

    Raises:
        NotAPerson: a line has more words.
    """
    people = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) > 2:  # noqa: PLR2004 - OWNER and TEAM
            raise NotAPerson(
                f"line {number} has {len(words)} words", hint="write OWNER or OWNER TEAM"
            )
        if words:
            people.append((number, words[0], words[1] if words[1:] else None))
    return people


def invitation_line(url: str, text: str, authority: str = "") -> str:
    """Return the command with which an invited person gets a key.

    It vouches for the server's own authority, of this fingerprint, if there is one.
    """
    trust = ["--authority", authority] if authority else []
    return shlex.join(["forge", "login", url, "--invitation", text, *trust])


class ApiKey(Record):
    """An API key without its secret. `signed` tells whether its requests must be signed.

    Besides its owner's jobs it sees those of a `team`, or of `everyone`. An `invitation` is a key
    until it expires; whoever accepts it has one that stays.
    """

    id: str
    owner: str
    role: Open[Role]
    name: str
    signed: bool
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    acts_for: str | None = None
    revoked_at: datetime | None = None
    team: str | None = None
    everyone: bool = False
    invitation: bool = False


def open_invitations(keys: Iterable[ApiKey], owner: str, now: datetime) -> list[str]:
    """Return the ids of the invitations that an owner can still accept."""
    return [
        key.id
        for key in keys
        if key.invitation and key.owner == owner and key.revoked_at is None
        and key.expires_at is not None and key.expires_at > now
    ]  # fmt: skip


class Secret(NamedTuple):
    """The id of a new key or worker, and its text, which cannot be read again."""

    id: str
    text: str


class _OfSecret(Answer):
    @classmethod
    def of(cls, value: Secret) -> Self:
        """Make the answer."""
        return cls.model_validate({"id": value.id, "token": value.text})

    def value(self) -> Secret:
        """Return the secret."""
        made = dict(self)
        return Secret(str(made["id"]), made["token"])


class SecretOfKey(_OfSecret):
    """A key and its text, which cannot be read again."""

    id: str
    token: str


class SecretOfWorker(_OfSecret):
    """A worker and its token, which cannot be read again."""

    id: int
    token: str


class NewToken(Answer):
    """The new text, which cannot be read again. The old one is invalid."""

    token: str


class WorkerNamed(Answer):
    """The newest worker with a name."""

    id: int


class Invitation(Record):
    """A worker that waits for its machine, and the line that makes a machine this worker, once."""

    id: int
    line: str
    url: str
    lasts_s: int


class UpgradeLine(Record):
    """The line that gives a machine which has joined the server's version of the worker."""

    line: str
    url: str


class Myself(Record):
    """The caller's owner and role, and the actor name used in the audit trail.

    `sees` are the owners whose jobs the caller sees, null for all.
    """

    owner: str
    role: Open[Role]
    actor: str
    sees: list[str] | None = None

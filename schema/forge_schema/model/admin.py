"""Models of queues, owners' limits, API keys and callers."""

from datetime import datetime
from typing import NamedTuple

from pydantic import Field

from forge_schema.model.fields import Open, Record
from forge_schema.model.job import Approval
from forge_schema.model.states import Role


class QueueInfo(Record):
    """A queue: settings (a null limit means none), waiting and running jobs, and GPUs in use."""

    name: str
    paused: bool
    max_jobs: int | None = None
    max_gpus: int | None = None
    waiting: int
    running: int
    gpus: int


class OwnerLimits(Record):
    """An owner's settings. A null limit means none; twice the weight is twice the share.

    A request that may spend more than `approve_gpu_hours` or `approve_cost` waits for an approval.
    """

    owner: str
    paused: bool = Field(repr=False)
    max_jobs: int | None = None
    max_gpus: int | None = None
    weight: float = 1.0
    approve_gpu_hours: float | None = None
    approve_cost: float | None = None


class AwaitingApproval(Record):
    """A job that waits for an admin's approval."""

    job_id: int
    name: str
    owner: str
    queue: str
    sweep: str | None = None
    submitted_at: datetime
    approval: Approval


class ApiKey(Record):
    """An API key without its secret. `signed` tells whether its requests must be signed."""

    id: str
    owner: str
    role: Open[Role]
    name: str
    signed: bool
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class Secret(NamedTuple):
    """The id of a new key or worker, and its text, which cannot be read again."""

    id: str
    text: str


class Myself(Record):
    """The caller's owner and role, and the actor name used in the audit trail."""

    owner: str
    role: Open[Role]
    actor: str

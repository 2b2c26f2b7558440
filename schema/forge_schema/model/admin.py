"""What admins look after: queues, quotas, API keys, and who calls with one."""

from datetime import datetime

from pydantic import Field

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import Role


class QueueInfo(Record):
    """A queue's settings (a limit of null is none), what waits, what runs and on how many GPUs."""

    name: str
    paused: bool
    max_jobs: int | None = None
    max_gpus: int | None = None
    waiting: int
    running: int
    gpus: int


class Quota(Record):
    """An owner's settings; a limit of null is none. Twice the weight is twice the share."""

    owner: str
    paused: bool = Field(repr=False)
    max_jobs: int | None = None
    max_gpus: int | None = None
    weight: float = 1.0


class ApiKey(Record):
    """An API key, without its secret; `signed` tells that its requests have to be."""

    id: str
    owner: str
    role: Open[Role]
    name: str
    signed: bool
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class Myself(Record):
    """Whose jobs the caller's are, what the caller may do, and how the audit trail calls them."""

    owner: str
    role: Open[Role]
    actor: str

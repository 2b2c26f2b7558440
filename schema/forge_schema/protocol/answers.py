"""What the server answers to a worker."""

from typing import Self
from uuid import UUID

from pydantic import BaseModel

from forge_schema.model.lease import Ended, Fence, Grant
from forge_schema.model.states import Command, Standing, WorkerKind


class Answer(BaseModel):
    """An answer; a worker older than the server passes over what it does not know."""


class Registered(Answer):
    """Who the worker is, and the seconds by which it is expected to be heard."""

    worker_id: int
    name: str
    kind: WorkerKind
    heartbeat_s: float
    lease_ttl_s: float
    queue_id: UUID | None = None


class Enrolled(Answer):
    """A worker of the caller's own, and its token; the token before is void."""

    worker_id: int
    token: str


class Claimed(Answer):
    """What became of the ends, and the jobs granted."""

    ended: list[Ended] = []
    grants: list[Grant] = []


class Stands(Answer):
    """How one lease stands."""

    job_id: int
    token: int
    nonce: UUID
    standing: Standing

    @classmethod
    def of(cls, fence: Fence, standing: Standing) -> Self:
        return cls(job_id=fence.job_id, token=fence.token, nonce=fence.nonce, standing=standing)

    def fence(self) -> Fence:
        return Fence(self.job_id, self.token, self.nonce)


class Renewed(Answer):
    """How each lease stands, and what the worker as a whole is asked to do."""

    standings: list[Stands] = []
    command: Command | None = None


class Told(Answer):
    """Answers a phase with how the lease stands, an end with what became of the job."""

    standing: Standing | None = None
    ended: Ended | None = None


class Nothing(Answer):
    """Done, and nothing to say."""


class LatestCheckpoint(Answer):
    """A complete checkpoint of a job; `job_id` is the job's that stored it."""

    job_id: int | None = None
    key: str
    attempt: int
    number: int
    files: int
    bytes: int


class Restorable(Answer):
    """A job's checkpoint, None where it has none, and those to try where it is damaged."""

    checkpoint: LatestCheckpoint | None = None
    others: list[LatestCheckpoint] = []


class Thinned(Answer):
    """How many objects were removed."""

    objects: int


class Hints(Answer):
    """What was heard: `ready` for work, `asked` for a heartbeat.

    `wait_s` says how long this server waits before it answers that it heard nothing.
    """

    items: list[str] = []
    wait_s: float = 0.0

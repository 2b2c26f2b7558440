"""The server's answers to a worker."""

from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from forge_schema.model.lease import Ended, Fence, Grant, Member
from forge_schema.model.states import Command, Standing, WorkerKind
from forge_schema.model.stored import InputCheckpoint, InputFile, SignedUrl


class WorkerAnswer(BaseModel):
    """An answer. A worker older than the server ignores unknown fields."""

    # A worker beside the database hears none of them.
    model_config = ConfigDict(defer_build=True)


class Registered(WorkerAnswer):
    """The worker's identity, and the intervals in seconds at which it should report."""

    worker_id: int
    name: str
    kind: WorkerKind
    heartbeat_s: float
    lease_ttl_s: float
    queue_id: UUID | None = None
    # Whether it stores small objects sent to it together.
    small_objects: bool = False


class Enrolled(WorkerAnswer):
    """The caller's own worker and its token. The previous token is invalid."""

    worker_id: int
    token: str


class Joined(Enrolled):
    """The worker that a machine has become. The token that it joined with is invalid."""

    name: str


class Claimed(WorkerAnswer):
    """The outcomes of the ended leases, and the jobs granted."""

    ended: list[Ended] = []
    grants: list[Grant] = []


class Upcoming(WorkerAnswer):
    """The job that the worker would likely be granted next. It has no lease: its token is 0.

    A worker that is `drafted` keeps room for a gang.
    """

    grant: Grant | None = None
    drafted: bool = False


class Stands(WorkerAnswer):
    """The status of one lease."""

    job_id: int
    token: int
    nonce: UUID
    standing: Standing

    @classmethod
    def of(cls, fence: Fence, standing: Standing) -> Self:
        return cls(job_id=fence.job_id, token=fence.token, nonce=fence.nonce, standing=standing)

    def fence(self) -> Fence:
        return Fence(self.job_id, self.token, self.nonce)


class Renewed(WorkerAnswer):
    """The status of each lease, and what the worker as a whole is asked to do."""

    standings: list[Stands] = []
    command: Command | None = None
    gangs_after_s: float | None = None
    suspected: bool = False


class ReportAnswer(WorkerAnswer):
    """The answer to a report: the lease's status for a phase, the outcome for an end."""

    standing: Standing | None = None
    ended: Ended | None = None


class Gathered(WorkerAnswer):
    """The lease's status, and all members of its run by rank."""

    standing: Standing
    members: list[Member] = []


class Nothing(WorkerAnswer):
    """Success without content."""


class Companion(WorkerAnswer):
    """The manifest of another rank's part of a checkpoint."""

    rank: int
    key: str


class LatestCheckpoint(WorkerAnswer):
    """A complete checkpoint of a job; `job_id` is the job that stored it.

    `key` is the manifest of rank 0, `companions` are those of the other ranks.
    """

    job_id: int
    key: str
    attempt: int
    number: int
    files: int
    bytes: int
    companions: list[Companion] = []
    passed_over: int | None = None


class NewestCheckpoints(WorkerAnswer):
    """The number and step of rank 0's newest checkpoint in a run, and the caller's own newest.

    With `packs`, every worker can restore packs of small files.
    """

    master_number: int | None = None
    master_step: int | None = None
    number: int | None = None
    key: str | None = None
    follows: int | None = None
    step: int | None = None
    packs: bool = False


class Restorable(WorkerAnswer):
    """A job's checkpoint, or None, and others to try if it is damaged."""

    checkpoint: LatestCheckpoint | None = None
    others: list[LatestCheckpoint] = []


class InputArtifacts(WorkerAnswer):
    """A page of another job's artifacts that are an input."""

    items: list[InputFile] = []


class ChosenCheckpoint(WorkerAnswer):
    """Another job's checkpoint that is an input, or None."""

    checkpoint: InputCheckpoint | None = None


class ThinnedCount(WorkerAnswer):
    """The number of objects removed."""

    objects: int


class SignedUrls(WorkerAnswer):
    """A signed URL for each object, in the order of the request."""

    urls: list[SignedUrl]


class Hints(WorkerAnswer):
    """What happened: `ready` if there may be work, `asked` if the worker should renew.

    `shell:` and an id asks the worker to connect for a shell inside one of its jobs.
    `wait_s` is how long this server waits before it answers that nothing happened.
    """

    items: list[str] = []
    wait_s: float = 0.0

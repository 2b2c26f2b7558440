"""The worker's messages to the server, validated on both sides."""

import hashlib
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    model_validator,
)
from pydantic.config import JsonDict

from forge_schema.model.attempt_records import (
    BeginsWith,
    CheckpointRecord,
    GivenInputs,
    LogChunkRecord,
    MetricLines,
    ReportedResult,
    ReportedTests,
    Samples,
    StoredArtifacts,
)
from forge_schema.model.fields import (
    NUMERIC,
    PATH_BYTES,
    Digest,
    Document,
    Flag,
    Id,
    Key,
    Note,
    Number,
    Size,
    Text,
    Word,
)
from forge_schema.model.lease import End, Fence, Usage
from forge_schema.model.reading import INTEGER, SMALLINT
from forge_schema.model.states import ATTEMPT_REASONS, Phase, Reason, WorkerStatus
from forge_schema.model.worker import MOST_GPUS, WARM, Capacity, Machine
from forge_schema.protocol import OBJECTS

# What the validators below check, in the JSON schema.
A_PHASE: JsonDict = {
    "required": ["phase"],
    "properties": {"phase": {"type": "string"}, "end": {"type": "null"}},
}
AN_END: JsonDict = {
    "required": ["end"],
    "properties": {"phase": {"type": "null"}, "end": {"type": "object"}},
}
DISTINCT: JsonDict = {"uniqueItems": True}
A_GET: JsonDict = {"properties": {"operation": {"const": "get"}}}
A_PUT: JsonDict = {
    "required": ["size", "sha256"],
    "properties": {
        "operation": {"const": "put"},
        "size": {"type": "integer"},
        "sha256": {"type": "string"},
    },
}
# In one request: a heartbeat with more leases would be larger than the server takes.
LEASES = 500
Part = Annotated[int, Field(ge=-INTEGER - 1, le=INTEGER), NUMERIC]


class Body(BaseModel):
    """The body of a request. A server older than the worker ignores the fields it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


# Messages are frozen, which mypy does not see.
class Register(Body, Machine):  # type: ignore[misc]
    """A worker that starts; memory and disk in MiB, price per hour."""

    @model_validator(mode="after")
    def _booted(self) -> Self:
        if self.boot_id.int == 0:
            raise ValueError("boot_id must be random")
        return self


class Held(Body):
    """A fencing token; the path names its job."""

    token: Id
    nonce: UUID

    def fence(self, job_id: int) -> Fence:
        return Fence(job_id, self.token, self.nonce)


def _of_an_attempt(reason: Reason) -> Reason:
    if reason not in ATTEMPT_REASONS:
        raise ValueError(f"no attempt ends as {reason}")
    return reason


AttemptReason = Annotated[
    Reason,
    AfterValidator(_of_an_attempt),
    Field(json_schema_extra={"enum": [reason.value for reason in ATTEMPT_REASONS]}),
]


class Ending(Body):
    """How an attempt ended."""

    reason: AttemptReason
    exit_code: Annotated[int, Field(ge=-INTEGER - 1, le=INTEGER), NUMERIC] | None = None
    detail: Annotated[Text, Field(max_length=10_000)] | None = None
    usage: Usage = Usage()
    lasting: Flag = False

    def of(self, fence: Fence) -> End:
        # A success has exit code 0, whatever the worker sent.
        code = 0 if self.reason is Reason.SUCCEEDED else self.exit_code
        return End(fence, self.reason, code, self.detail, self.usage, self.lasting)


class Finished(Held, Ending):
    """A lease to end; as succeeded, if it gives no reason."""

    job_id: Id
    reason: AttemptReason = Reason.SUCCEEDED

    def end(self) -> End:
        return self.of(self.fence(self.job_id))


class Claim(Body):
    """End leases and request jobs, waiting up to `wait_s` seconds for one."""

    boot_id: UUID
    ends: Annotated[
        list[Finished], FailFast(), Field(max_length=100, json_schema_extra=DISTINCT)
    ] = []
    free: Capacity
    count: Annotated[int, Field(ge=0, le=100), NUMERIC] = 1
    wait_s: Annotated[Number, Field(ge=0, le=60)] = 0.0
    hinted: Annotated[Flag, Field(description="there may be jobs of a new kind")] = False
    nonce: Annotated[UUID | None, Field(description="the claim's name, for its leases")] = None
    repeated: Annotated[Flag, Field(description="the answer to this nonce was lost")] = False
    warm: Annotated[
        list[Part], FailFast(), Field(max_length=WARM, description="parts of jobs that it has")
    ] = []

    @model_validator(mode="after")
    def _one_end_of_a_job(self) -> Self:
        if len({end.job_id for end in self.ends}) < len(self.ends):
            raise ValueError("ends names a job twice")
        return self


class Heartbeat(Body):
    """Renew leases. A lease that is not listed expires."""

    boot_id: UUID
    status: Literal[WorkerStatus.IDLE, WorkerStatus.BUSY, WorkerStatus.CONSTRAINED]
    leases: Annotated[list[Fence], FailFast(), Field(max_length=LEASES)] = []
    condition: Document | None = None


class Goodbye(Body):
    """The boot of a worker that disconnects, and why if it leaves by itself."""

    boot_id: UUID
    why: Note = ""


class Next(Body):
    """The boot of a worker that looks for what it may prepare, and jobs that it passes over.

    One that is about to leave wants a `fresh` answer.
    """

    boot_id: UUID
    past: Annotated[list[Id], Field(max_length=OBJECTS)] = []
    fresh: Flag = False


class Status(Held):
    """Either a job's phase or the end of its attempt."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [A_PHASE, AN_END]})

    phase: Phase | None = None
    devices: Annotated[list[Word], Field(max_length=MOST_GPUS)] | None = None
    progress: Number | None = None
    replaced_by: Annotated[
        UUID | None, Field(description="the boot of an agent that continues another's job")
    ] = None
    end: Ending | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.phase is None) == (self.end is None):
            raise ValueError("give a phase or an end")
        return self


class Gather(Held):
    """How far a member of a run has come: 1 prepared, 2 reachable; and what it tells the others."""

    step: Annotated[int, Field(ge=1, le=2), NUMERIC]
    member: Document


class NewLogChunk(Held, LogChunkRecord):  # type: ignore[misc]
    """Record a log chunk whose upload is complete."""


class NewCheckpoint(Held, CheckpointRecord):  # type: ignore[misc]
    """Record a checkpoint of one rank. Attempts may resume from it once every rank has one."""


class Begins(Held, BeginsWith):  # type: ignore[misc]
    """Record the checkpoint of its job that an attempt begins with."""


class NewArtifacts(Held, StoredArtifacts):  # type: ignore[misc]
    """Record artifacts whose uploads are complete."""


class NewMetrics(Held, MetricLines):  # type: ignore[misc]
    """Store metric lines. Those already stored are skipped."""


class NewSamples(Held, Samples):  # type: ignore[misc]
    """Store resource samples. Those already stored are skipped."""


class NewResult(Held, ReportedResult):  # type: ignore[misc]
    """Store the result of an attempt. The first one stays."""


class NewTests(Held, ReportedTests):  # type: ignore[misc]
    """Store the test results of an attempt."""


class NewInputs(Held, GivenInputs):  # type: ignore[misc]
    """Record the inputs that an attempt begins with."""


RECORDS: dict[type, tuple[str, type[Held]]] = {
    LogChunkRecord: ("log-chunks", NewLogChunk),
    CheckpointRecord: ("checkpoints", NewCheckpoint),
    BeginsWith: ("checkpoints/begin", Begins),
    StoredArtifacts: ("artifacts", NewArtifacts),
    MetricLines: ("metrics", NewMetrics),
    Samples: ("samples", NewSamples),
    ReportedResult: ("result", NewResult),
    ReportedTests: ("tests", NewTests),
    GivenInputs: ("inputs", NewInputs),
}
"""The path of each record below its job's, and the message that it travels in."""


class InputArtifactsWanted(Held):
    """A request for artifacts of another job, at a path or below it, after another path."""

    source_id: Id
    path: Annotated[Text, Field(max_length=500)] = ""
    after: Annotated[Text, Field(max_length=PATH_BYTES)] = ""


class InputCheckpointWanted(Held):
    """A request for a checkpoint of another job, the best one if none is named."""

    source_id: Id
    attempt: Annotated[int, Field(ge=1, le=SMALLINT), NUMERIC] | None = None
    number: Annotated[int, Field(ge=0, lt=10**6), NUMERIC] | None = None


class Thin(Held):
    """Thin out a job's checkpoints; `everywhere` also cleans up after earlier attempts."""

    keep: Annotated[int, Field(ge=1, le=1000), NUMERIC]
    everywhere: Flag = False


class Transfer(Body):
    """An object of a lease's job to store or to read; `size` in bytes."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [A_GET, A_PUT]})

    operation: Literal["put", "get"]
    key: Key
    size: Size | None = None
    sha256: Digest | None = None
    if_absent: Flag = False

    @model_validator(mode="after")
    def _what_is_put_is_known(self) -> Self:
        if self.operation == "put" and (self.size is None or self.sha256 is None):
            raise ValueError("to put an object, give its size and sha256")
        return self


class ObjectWanted(Held, Transfer):
    """A request to store or read an object of a lease's job."""


class ObjectsWanted(Held):
    """A request to store or read several objects of a lease's job."""

    objects: Annotated[list[Transfer], FailFast(), Field(min_length=1, max_length=OBJECTS)]


class InputsWanted(Body):
    """Inputs of a waiting job, by their keys."""

    keys: Annotated[list[Key], FailFast(), Field(min_length=1, max_length=OBJECTS)]


BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class SmallObject(Body):
    """An object of a lease's job, with its content."""

    key: Key
    sha256: Digest
    content: Annotated[Base64Bytes, Field(json_schema_extra={"pattern": BASE64})]

    def is_whole(self) -> bool:
        """Return whether the content has the SHA-256."""
        return hashlib.sha256(self.content).hexdigest() == self.sha256


class SmallObjects(Held):
    """Small objects of a lease's job to store, with their content."""

    objects: Annotated[list[SmallObject], FailFast(), Field(min_length=1, max_length=OBJECTS)]

"""What a worker sends to the server, checked on both sides."""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator
from pydantic.config import JsonDict

from forge_schema.model.fields import (
    INTEGER,
    NUMERIC,
    Amount,
    Count,
    Digest,
    Document,
    Flag,
    Id,
    Key,
    Number,
    Path,
    Size,
    Text,
    Word,
)
from forge_schema.model.known_fields import KnownFields
from forge_schema.model.lease import End, Fence, Usage
from forge_schema.model.states import Phase, Reason, Verdict, WorkerKind, WorkerStatus
from forge_schema.queue.lanes import Capacity
from forge_schema.queue.records import Artifact, Checkpoint, LogChunk, MetricLine, Sample, Tested
from forge_schema.queue.registry import Machine

# For readers of the schema, what the validators below refuse.
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
# How many rows and leases travel in one request.
ROWS = 5000
LEASES = 10_000
# A log chunk is unpacked in its reader's memory. A worker makes them of a quarter of this.
CHUNK = 16 << 20


class Body(KnownFields, BaseModel):
    """A request's body; a field that is not known is refused."""


class Gpu(Body):
    """One GPU of a worker, or a slice of one; memory in MiB."""

    uuid: Word
    name: Word
    vram_mb: Count
    vendor: Word = "nvidia"
    capability: Annotated[Text, Field(max_length=200)] = ""
    driver: Annotated[Text, Field(max_length=200)] = ""
    parent: Word | None = None


class Register(Body):
    """A boot of a worker; memory and disk in MiB, price in money per hour."""

    boot_id: UUID
    cpus: Annotated[Number, Field(gt=0, le=1e6)]
    memory_mb: Annotated[int, Field(gt=0, le=INTEGER), NUMERIC]
    disk_mb: Count
    kind: WorkerKind = WorkerKind.PERSISTENT
    accelerator: Word = "cpu"
    gpus: Annotated[list[Gpu], FailFast(), Field(max_length=64)] = []
    labels: Annotated[
        dict[Word, Annotated[Text, Field(max_length=2000)]], Field(max_length=100)
    ] = {}
    local: Flag = False
    price_per_hour: Amount | None = None
    version: Annotated[Text, Field(max_length=200)] = ""
    folder_id: UUID | None = None
    replace: Flag = False

    @model_validator(mode="after")
    def _booted(self) -> Self:
        if self.boot_id.int == 0:
            raise ValueError("boot_id is to be random")
        return self

    def machine(self, name: str) -> Machine:
        """Return it under the name that an admin gave the worker."""
        return Machine(name=name, **self.model_dump())


class Used(Body):
    """What an attempt used, as `Usage`."""

    gpu_seconds: Amount = 0.0
    energy_j: Amount | None = None
    cost: Amount | None = None
    cpu_seconds: Amount | None = None
    peak_memory_mb: Count | None = None
    peak_vram_mb: Count | None = None

    def usage(self) -> Usage:
        return Usage(**self.model_dump())


class Held(Body):
    """A fencing token, below the path of its job."""

    token: Id
    nonce: UUID

    def fence(self, job_id: int) -> Fence:
        return Fence(job_id, self.token, self.nonce)


class Lease(Held):
    """A fencing token with its job."""

    job_id: Id

    def lease(self) -> Fence:
        return self.fence(self.job_id)


class Success(Lease):
    """A lease that is to end as succeeded."""

    usage: Used = Used()

    def end(self) -> End:
        return End(self.lease(), Reason.SUCCEEDED, 0, usage=self.usage.usage())


class Free(Body):
    """What a worker has free, its GPUs of one kind; as `Capacity`, memory and disk in MiB."""

    cpus: Annotated[Number, Field(ge=0, le=1e6)]
    memory_mb: Count
    disk_mb: Count
    gpus: Annotated[int, Field(ge=0, le=64), NUMERIC] = 0
    gpu_model: Annotated[Text, Field(max_length=200)] = ""
    vram_mb: Count = 0
    gpus_in_all: Annotated[int, Field(ge=0, le=64), NUMERIC] = 0

    def capacity(self) -> Capacity:
        return Capacity(**self.model_dump())


class Claim(Body):
    """Report successes and ask for jobs; `wait_s` seconds at most may pass until there is one."""

    boot_id: UUID
    ends: Annotated[
        list[Success], FailFast(), Field(max_length=100, json_schema_extra=DISTINCT)
    ] = []
    free: Free
    count: Annotated[int, Field(ge=0, le=100), NUMERIC] = 1
    wait_s: Annotated[Number, Field(ge=0, le=60)] = 0.0
    hinted: Annotated[Flag, Field(description="there may be work of a kind not seen before")] = (
        False
    )

    @model_validator(mode="after")
    def _one_end_of_a_job(self) -> Self:
        if len({end.job_id for end in self.ends}) < len(self.ends):
            raise ValueError("ends names a job twice")
        return self


class Heartbeat(Body):
    """Renew leases; one that is not listed runs out."""

    boot_id: UUID
    status: Literal[WorkerStatus.IDLE, WorkerStatus.BUSY, WorkerStatus.CONSTRAINED]
    leases: Annotated[list[Lease], FailFast(), Field(max_length=LEASES)] = []
    condition: Document | None = None


class Boot(Body):
    """Which boot of a worker leaves."""

    boot_id: UUID


class Ending(Body):
    """How an attempt ended."""

    reason: Reason
    exit_code: Annotated[int, Field(ge=-INTEGER - 1, le=INTEGER), NUMERIC] | None = None
    detail: Annotated[Text, Field(max_length=10_000)] | None = None
    usage: Used = Used()

    def of(self, fence: Fence) -> End:
        # What succeeded has exited with 0, whatever else is said.
        code = 0 if self.reason is Reason.SUCCEEDED else self.exit_code
        return End(fence, self.reason, code, self.detail, self.usage.usage())


class Status(Held):
    """Either the phase that a job is in, or how its attempt ended."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [A_PHASE, AN_END]})

    phase: Phase | None = None
    devices: Annotated[list[Word], Field(max_length=64)] | None = None
    progress: Number | None = None
    end: Ending | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.phase is None) == (self.end is None):
            raise ValueError("give a phase or an end")
        return self


class NewLogChunk(Held):
    """A log chunk whose upload is complete; `start` and `bytes` are uncompressed."""

    number: Annotated[int, Field(ge=0, lt=10**8), NUMERIC]
    key: Key
    start: Size
    bytes: Annotated[int, Field(gt=0, le=CHUNK), NUMERIC]
    sha256: Digest

    def record(self) -> LogChunk:
        return LogChunk(**self.model_dump(exclude={"token", "nonce"}))


class NewCheckpoint(Held):
    """A checkpoint whose files and manifest are stored."""

    number: Annotated[int, Field(ge=0, lt=10**6), NUMERIC]
    key: Key
    files: Count
    bytes: Size

    def record(self) -> Checkpoint:
        return Checkpoint(**self.model_dump(exclude={"token", "nonce"}))


class Thin(Held):
    """Thin out a job's checkpoints; `everywhere` looks for what earlier attempts left, too."""

    keep: Annotated[int, Field(ge=1, le=1000), NUMERIC]
    everywhere: Flag = False


class NewArtifact(Body):
    """A stored output file."""

    path: Path
    key: Key
    bytes: Size
    sha256: Digest


class NewArtifacts(Held):
    """Output files that are stored."""

    artifacts: Annotated[list[NewArtifact], FailFast(), Field(min_length=1, max_length=ROWS)]

    def records(self) -> list[Artifact]:
        return [Artifact(**artifact.model_dump()) for artifact in self.artifacts]


class NewMetric(Body):
    """One line of a metrics file, numbered from 0 within its attempt."""

    number: Annotated[int, Field(ge=0, lt=INTEGER), NUMERIC]
    step: Number | None = None
    values: Document


class NewMetrics(Held):
    """Metric lines, in order; `progress` is the share done."""

    lines: Annotated[list[NewMetric], FailFast(), Field(min_length=1, max_length=ROWS)]
    progress: Number | None = None

    def records(self) -> list[MetricLine]:
        return [MetricLine(line.number, line.step, dict(line.values)) for line in self.lines]


class NewSample(Body):
    """What an attempt used when the worker looked, numbered from 0 within its attempt."""

    number: Annotated[int, Field(ge=0, lt=INTEGER), NUMERIC]
    values: Document


class NewSamples(Held):
    """Samples, in order."""

    samples: Annotated[list[NewSample], FailFast(), Field(min_length=1, max_length=ROWS)]

    def records(self) -> list[Sample]:
        return [Sample(sample.number, dict(sample.values)) for sample in self.samples]


class NewResult(Held):
    """What an attempt found, one JSON object."""

    values: Document


class NewTest(Body):
    """How one test ended, numbered from 0 within its attempt."""

    number: Annotated[int, Field(ge=0, lt=INTEGER), NUMERIC]
    suite: Annotated[Text, Field(max_length=1000)]
    name: Annotated[Text, Field(max_length=1000)]
    verdict: Verdict
    seconds: Amount | None = None
    message: Annotated[Text, Field(max_length=10_000)] | None = None


class NewTests(Held):
    """How the tests of an attempt ended."""

    tests: Annotated[list[NewTest], FailFast(), Field(min_length=1, max_length=ROWS)]

    def records(self) -> list[Tested]:
        return [Tested(**test.model_dump()) for test in self.tests]


class ObjectWanted(Held):
    """One object that a lease's holder wants to store or to read; `size` in bytes."""

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

"""Records that a worker stores about an attempt, one row each."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import FailFast, Field

from forge_schema.model.fields import (
    NUMERIC,
    Amount,
    Count,
    Digest,
    Document,
    Flag,
    Key,
    MessagePart,
    Moment,
    Number,
    Path,
    PathBelow,
    Size,
    Text,
)
from forge_schema.model.reading import INTEGER, SMALLINT
from forge_schema.model.states import Verdict

# A log chunk is unpacked in the reader's memory. Workers write a quarter of this.
CHUNK = 16 << 20
# What the last checkpoint of a rank follows, after which it can have no other.
ALL = INTEGER
# The most of one kind in one request.
ROWS = 5000
# Numbered from 0 within an attempt.
Line = Annotated[int, Field(ge=0, lt=INTEGER), NUMERIC]


@dataclass(frozen=True)
class LogChunkRecord:
    """A stored piece of output; `start` and `bytes` count uncompressed bytes."""

    number: Annotated[int, Field(ge=0, lt=10**8), NUMERIC]
    key: Key
    start: Size
    bytes: Annotated[int, Field(gt=0, le=CHUNK), NUMERIC]
    sha256: Digest


@dataclass(frozen=True)
class CheckpointRecord:
    """A stored checkpoint of one rank; `key` is its manifest.

    One of another rank than 0 `follows` rank 0's of this number and those before: it was taken
    after them. `step` is the one that the program committed. `killed` tells that
    it was stored after the program had been killed, maybe while it wrote.
    """

    number: Annotated[int, Field(ge=0, lt=10**6), NUMERIC]
    key: Key
    files: Count
    bytes: Size
    follows: Count | None = None
    step: Size | None = None
    killed: Flag = False


@dataclass(frozen=True, slots=True)
class ArtifactRecord(MessagePart):
    """A stored output file; `path` is relative to the output folder, with forward slashes.

    A link has a `target`, which is its content too. `modified_at` is when a file was last changed.
    """

    path: PathBelow
    key: Key
    bytes: Size
    sha256: Digest
    target: Path | None = None
    modified_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class MetricRecord(MessagePart):
    """One line of a job's metrics file."""

    number: Line
    step: Annotated[Number | None, Field(default=None)]
    values: Document


@dataclass(frozen=True, slots=True)
class Sample(MessagePart):
    """One measurement of an attempt's resources."""

    number: Line
    values: Document


@dataclass(frozen=True, slots=True)
class Tested(MessagePart):
    """The result of one test. `seconds` is None if unknown."""

    number: Line
    suite: Annotated[Text, Field(max_length=1000)]
    name: Annotated[Text, Field(max_length=1000)]
    verdict: Verdict
    seconds: Amount | None = None
    message: Annotated[Text, Field(max_length=10_000)] | None = None


@dataclass(frozen=True, slots=True)
class GivenInput(MessagePart):
    """What a job found in an input: the version of its source, and the digest of its content.

    Of a folder that the operator offers, only the source is known.
    """

    source: Annotated[Text, Field(max_length=1000)]
    version: Annotated[Text, Field(max_length=200)] = ""
    digest: Digest | None = None
    bytes: Size | None = None
    files: Count | None = None


# What the records below hold is bounded for a worker's messages, which they are parts of.
@dataclass(frozen=True)
class BeginsWith:
    """The checkpoint of its job that an attempt begins with."""

    attempt: Annotated[int, Field(ge=1, le=SMALLINT), NUMERIC]
    number: Annotated[int, Field(ge=0, lt=10**6), NUMERIC]


@dataclass(frozen=True)
class StoredArtifacts:
    """Output files whose uploads are complete."""

    artifacts: Annotated[list[ArtifactRecord], FailFast(), Field(min_length=1, max_length=ROWS)]


@dataclass(frozen=True)
class MetricLines:
    """Metric lines, in order; `progress` is the fraction done, 0 to 1."""

    lines: Annotated[list[MetricRecord], FailFast(), Field(min_length=1, max_length=ROWS)]
    progress: Number | None = None


@dataclass(frozen=True)
class Samples:
    """Samples, in order."""

    samples: Annotated[list[Sample], FailFast(), Field(min_length=1, max_length=ROWS)]


@dataclass(frozen=True)
class ReportedResult:
    """The result of an attempt, one JSON object. The first one stays."""

    values: Document


@dataclass(frozen=True)
class ReportedTests:
    """The test results of an attempt."""

    tests: Annotated[list[Tested], FailFast(), Field(min_length=1, max_length=ROWS)]


@dataclass(frozen=True)
class GivenInputs:
    """The inputs that an attempt begins with, by name."""

    inputs: Annotated[dict[Text, GivenInput], Field(max_length=16)]


AttemptRecord: TypeAlias = (
    LogChunkRecord
    | CheckpointRecord
    | BeginsWith
    | StoredArtifacts
    | MetricLines
    | Samples
    | ReportedResult
    | ReportedTests
    | GivenInputs
)

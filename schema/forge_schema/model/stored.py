"""What is stored of a job: the segments of a large bundle, its log, artifacts and checkpoints."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import FailFast, Field, ValidationError

from forge_schema.model.bundles import (
    MOST_LIST_BYTES,
    MOST_SEGMENT_BYTES,
    MOST_SEGMENTS,
    list_digest,
)
from forge_schema.model.fields import NUMERIC, Digest, KnownFields, MessagePart, Record
from forge_schema.model.reading import ChunkReading

# The most items of any list, and of chunks, in one answer.
PAGE, CHUNKS = 1000, 100
# Of a series: the points of each curve, at most so many, and the most curves of each source.
POINTS, MOST_POINTS, MOST_KEYS = 500, 2000, 64
# Of what workers and users wrote, in one answer: no server holds more of it.
BYTES = 1 << 20


class Segment(KnownFields):
    """A piece of a large bundle, an object named by its SHA-256; `bytes` is its packed size."""

    sha256: Digest
    bytes: Annotated[int, Field(ge=1, le=MOST_SEGMENT_BYTES), NUMERIC]


class SegmentList(KnownFields):
    """A large bundle: segments that are a zstd frame each, and one after the other a tar."""

    segments: Annotated[list[Segment], FailFast(), Field(min_length=1, max_length=MOST_SEGMENTS)]

    def dumped(self) -> bytes:
        """Serialise it; equal lists give equal bytes."""
        return self.model_dump_json().encode()


def segments_in(data: bytes, digest: str) -> tuple[Segment, ...]:
    """Return the segments of the list with this digest; none if the data is not that list."""
    if len(data) > MOST_LIST_BYTES or list_digest(data) != digest:
        return ()
    try:
        return tuple(SegmentList.model_validate_json(data).segments)
    except ValidationError:
        return ()


class Stored(Record):
    """A stored object of a job. Over HTTP, `url` is a temporary URL to fetch it from."""

    # Set by the client, not the server.
    job_id: int = Field(default=0, exclude=True, repr=False)
    # The URL gives access to the object, so it is never shown.
    url: str = Field(default="", repr=False)


class LogChunk(ChunkReading, Stored):
    """A piece of output, compressed with zstd; `start` and `bytes` count uncompressed bytes."""

    token: int
    rank: int
    number: int
    attempt: int
    key: str
    start: int
    bytes: int
    sha256: str
    created_at: datetime


def in_chunks(key: str) -> bool:
    """Tell whether the object with a key lists the chunks of a file, and is not the file."""
    return re.match(r"jobs/[0-9]+/[^/]+/chunked/", key) is not None


class Artifact(Stored):
    """An output file of a job; `path` is relative, with forward slashes.

    Over HTTP, the `url` of one in chunks leads to a server that puts it together. A symbolic link
    has a `target`, which is the content of its object too. `modified_at` is when a file was last
    changed, if that is known.
    """

    path: str
    key: str
    bytes: int
    sha256: str
    attempt: int
    target: str | None = None
    modified_at: datetime | None = None


class ArtifactChunk(Stored):
    """A chunk of an output file, at `offset` in it."""

    key: str
    offset: int
    bytes: int
    sha256: str


class Checkpoint(Record):
    """A complete checkpoint. The job's next attempt resumes from the one that is `next`.

    `step` is the one that the program committed. `files` and `bytes` are those of all ranks. It is
    `passed_over` if the attempt of this number failed soon after it had begun with it, or had
    stored it before it failed so; 0 if somebody chose an older one.
    """

    attempt: int
    number: int
    created_at: datetime
    age_s: float
    files: int
    bytes: int
    next: bool
    step: int | None = None
    passed_over: int | None = None

    @property
    def name(self) -> str:
        """Its name in `--from-checkpoint JOB:…`."""
        return checkpoint_name(self.attempt, self.number)

    @property
    def standing(self) -> str:
        """Whether the next attempt begins with it, and why not."""
        if self.passed_over is None:
            return "restored next" if self.next else ""
        if self.passed_over == 0:
            return "passed over: an older one was chosen"
        did = "stored it" if self.passed_over == self.attempt else "began with it"
        return f"passed over: attempt {self.passed_over} {did} and failed"


def checkpoint_name(attempt: int, number: int) -> str:
    """Return the name that people give to a checkpoint of a job."""
    return f"{attempt}.{number}"


def passed_over_text(rows: Collection[Mapping[str, Any]]) -> str:
    """Say which checkpoints are passed over, and why; empty if there are none."""
    blamed = {
        row["passed_over"]: checkpoint_name(row["attempt"], row["number"])
        for row in rows
        if row["passed_over"] > row["attempt"]
    }
    failed = [
        f"attempt {attempt} failed soon after it had begun with checkpoint {blamed[attempt]}"
        for attempt in sorted(blamed)
    ]
    chosen = ["it was chosen"] if any(row["passed_over"] == 0 for row in rows) else []
    return ", ".join([*failed, *chosen])


@dataclass(frozen=True, slots=True)
class InputFile(MessagePart):
    """An artifact that is an input of another job: one object, or several of `chunk_bytes` each.

    A link has a `target`.
    """

    path: str
    bytes: int
    sha256: str
    keys: list[str]
    chunk_bytes: int = 0
    target: str | None = None


@dataclass(frozen=True, slots=True)
class InputCheckpoint(MessagePart):
    """A checkpoint that is an input of another job: the keys of its manifests, rank 0's first."""

    attempt: int
    number: int
    keys: list[str]


class SignedUrl(Record):
    """A signed request: send it with this method and exactly these headers before it expires.

    A worker on the machine of the server may also use the socket `same_machine` there.
    """

    url: str
    method: str
    headers: dict[str, str] = Field(default_factory=dict)
    expires_in_s: int
    same_machine: str | None = None


class SegmentUpload(SignedUrl):
    """How to upload the segment with this SHA-256."""

    sha256: str


class BundleOffer(Record):
    """Whether a bundle in segments is stored, and if not, how to upload what is missing.

    `missing_bytes` is the size of all missing segments; `uploads` are the first of them.
    """

    digest: str
    stored: bool
    missing_bytes: int
    uploads: list[SegmentUpload]

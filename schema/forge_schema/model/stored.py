"""What a job stores: its log, artifacts and checkpoints."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from forge_schema.model.fields import MessagePart, Record
from forge_schema.model.reading import ChunkReading

# Files of a checkpoint below this name are files of the job's work folder.
WORK = ".forge-work"
# The most items of any list, and of chunks, in one answer.
PAGE, CHUNKS = 1000, 100
# Of a series: the points of each curve, at most so many, and the most curves of each source.
POINTS, MOST_POINTS, MOST_KEYS = 500, 2000, 64
# Of what workers and users wrote, in one answer: no server holds more of it.
BYTES = 1 << 20
MOST_TARGET_BYTES = 4095


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


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path`, relative to its folder, cannot lead out of it.

    It goes up first, at most to the folder, and then only down. So it also stays inside if a name
    on its way down is such a link itself.
    """
    parts = PurePosixPath(target).parts
    if not target or "\0" in target or target.startswith("/") or len(target) > MOST_TARGET_BYTES:
        return False
    ups = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= depth(path) and ".." not in parts[ups:]


def depth(path: str) -> int:
    """Return how many folders are above a path, up to the one that its links may not leave."""
    parts = PurePosixPath(path).parts
    return len(parts) - (2 if parts[:1] == (WORK,) else 1)


def destination(path: str, target: str) -> str:
    """Return where a link that stays inside leads: a path relative to its folder, "" for itself."""
    place = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            place.pop()
        else:
            place.append(part)
    return "/".join(place)


def below_a_link(paths: Iterable[str], links: Iterable[str]) -> str | None:
    """Return a path that lies below one of the links, so that it would be reached through it."""
    link_paths = {str(PurePosixPath(link)) for link in links}
    if not link_paths:
        return None
    for path in paths:
        if any(str(above) in link_paths for above in PurePosixPath(path).parents):
            return path
    return None

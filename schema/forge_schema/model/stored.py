"""What a job leaves in the store: its log, its artifacts, its checkpoints."""

from datetime import datetime

from pydantic import Field

from forge_schema.model.fields import Record


class Stored(Record):
    """An object of a job's; `url` is where to fetch it for a while, if it came over HTTP."""

    # The reader's own note.
    job_id: int = Field(default=0, exclude=True, repr=False)
    # Whoever has the URL has the object, so it is shown nowhere.
    url: str = Field(default="", repr=False)


class LogChunk(Stored):
    """A stored piece of output, packed by zstd; `start` and `bytes` count unpacked bytes."""

    token: int
    rank: int
    number: int
    attempt: int
    key: str
    start: int
    bytes: int
    sha256: str
    created_at: datetime

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the reading order."""
        return self.token, self.rank, self.number


class Artifact(Stored):
    """A file that a job left; `path` is relative, with forward slashes."""

    path: str
    key: str
    bytes: int
    sha256: str
    attempt: int


class Checkpoint(Record):
    """A complete checkpoint; the job's next attempt begins with the one that is `next`."""

    attempt: int
    number: int
    created_at: datetime
    age_s: float
    files: int
    bytes: int
    next: bool

    @property
    def name(self) -> str:
        """How `--from-checkpoint JOB:…` names it."""
        return f"{self.attempt}.{self.number}"


class SignedUrl(Record):
    """A request that its holder may send: this method, exactly these headers, in this time."""

    url: str
    method: str
    headers: dict[str, str] = Field(default_factory=dict)
    expires_in_s: int

"""A checkpoint's manifest: its files, each with its digest and key."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from forge_schema.model.errors import ForgeError

VERSION = 1


class CheckpointUnsound(ForgeError):
    """A stored checkpoint does not match its manifest, or the manifest is invalid."""

    code = "checkpoint_unsound"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. `path` is relative with forward slashes; `size` is in bytes."""

    path: str
    size: int
    sha256: str
    key: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a checkpoint, by path."""

    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """The total size of the files in bytes."""
        return sum(entry.size for entry in self.files)

    def dumped(self) -> bytes:
        rows = [asdict(entry) for entry in self.files]
        return json.dumps({"version": VERSION, "files": rows}, sort_keys=True).encode()

    @classmethod
    def loaded(cls, data: bytes, *, job_id: int) -> "Manifest":
        """Parse the manifest of a job's checkpoint, which may refer only to the job's objects.

        Raises:
            CheckpointUnsound: it is not a manifest, a path in it would leave the folder, or a file
                is not the job's.
        """
        try:
            told = json.loads(data)
            if told["version"] != VERSION:
                raise CheckpointUnsound("the checkpoint's manifest has another version")
            files = tuple(Entry(**row) for row in told["files"])
            faults = [fault for entry in files if (fault := _fault(entry, job_id))]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointUnsound("the checkpoint's manifest cannot be read") from error
        if faults:
            raise CheckpointUnsound(faults[0])
        return cls(files)


def _fault(entry: Entry, job_id: int) -> str | None:
    path = PurePosixPath(entry.path)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in entry.path:
        return f"{entry.path!r} would leave the checkpoint's folder"
    if not entry.key.startswith(f"jobs/{job_id}/"):
        return f"{entry.key!r} is not an object of the job"
    return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

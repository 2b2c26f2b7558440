"""Create and validate the names of objects, which are the same in every store."""

import re
import unicodedata
from dataclasses import dataclass
from uuid import UUID

from forge_schema.model.quantities import counted
from forge_schema.storage.store import KeyInvalid

KEY_BYTES = 900  # S3 allows 1024, including the store's prefix
SEGMENT_BYTES = 255  # the limit of file systems
UNNAMEABLE = "unnameable"  # the folder of artifacts whose names no key can hold, by a digest
SEGMENTS = "bundles/segments/"  # the folder of the segments of large bundles
RESERVED = ".forge-tmp"  # the file store's folder for unfinished objects

PROBE = "probe/"  # the folder of the objects with which a store is tried

# The keys that owners share, so that each must have the content that it names.
_NAMED = re.compile(r"(?:bundles/(?:segments/)?|images/)([0-9a-f]{64})\.[a-z.]+\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")


def checked(key: str) -> str:
    """Return the key if it is valid in every store.

    Raises:
        KeyInvalid: it is empty, too long, or could be a path that leaves the store.
    """
    if fault := _fault(key):
        raise KeyInvalid(f"{key!r} cannot name an object: {fault}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return the prefix if it is empty or the beginning of a valid key.

    Raises:
        KeyInvalid: no valid key begins with it.
    """
    if prefix:
        checked(prefix + "x" if prefix.endswith("/") else prefix)
    return prefix


def is_valid(key: str) -> bool:
    """Tell whether `checked` accepts the key."""
    return _fault(key) is None


def _fault(key: str) -> str | None:
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not 0 < length <= KEY_BYTES:
        return f"its length must be 1 to {counted(KEY_BYTES, 'byte')}"
    if "\\" in key or any(unicodedata.category(char) == "Cc" for char in key):
        return "it contains a backslash or a control character"
    return next((fault for part in key.split("/") if (fault := _segment_fault(part))), None)


def _segment_fault(segment: str) -> str | None:
    if segment in {"", ".", "..", RESERVED}:
        return f"{segment!r} is not allowed between its slashes"
    if len(segment.encode()) > SEGMENT_BYTES:
        return f"one of its names is longer than {counted(SEGMENT_BYTES, 'byte')}"
    return None


def is_digest(text: str) -> bool:
    """Tell whether `checked_digest` accepts the text."""
    return _DIGEST.match(text) is not None


def checked_digest(digest: str) -> str:
    """Return the digest if it is a SHA-256 in lower-case hexadecimal.

    Raises:
        KeyInvalid: it is anything else.
    """
    if not is_digest(digest):
        raise KeyInvalid(f"{digest!r} is not a SHA-256 in lower-case hexadecimal")
    return digest


def named_digest(key: str) -> str | None:
    """Return the SHA-256 that a bundle's, segment's or image's key contains; None for others."""
    match = _NAMED.match(key)
    return match[1] if match else None


def bundle(digest: str) -> str:
    """Return the key of the bundle with this digest: an archive, or a list of segments."""
    return f"bundles/{checked_digest(digest)}.tar.zst"


def segment(digest: str) -> str:
    """Return the key of the segment of bundles with this SHA-256."""
    return f"{SEGMENTS}{checked_digest(digest)}.zst"


def image(digest: str) -> str:
    """Return the key of the saved image with this SHA-256."""
    return f"images/{checked_digest(digest)}.tar"


def job_prefix(job_id: UUID | str | int) -> str:
    """Return the folder of all objects of a job, ending in a slash."""
    return f"jobs/{job_id}/"


@dataclass(frozen=True)
class AttemptKeys:
    """The keys of one attempt's objects. The token separates those of a late writer."""

    job: UUID | str | int
    attempt: int
    token: UUID | str | int

    def __post_init__(self) -> None:
        for word in (self.job, self.attempt, self.token):
            if not _WORD.match(str(word)):
                raise KeyInvalid(f"{str(word)!r} is not allowed in an attempt's prefix")

    @property
    def prefix(self) -> str:
        """The attempt's folder, ending in a slash."""
        return f"{job_prefix(self.job)}{self.attempt}-{self.token}/"

    def log_chunk(self, number: int) -> str:
        """Return the key of the log chunk with this number, from 0."""
        return f"{self.prefix}logs/{_numbered(number, 8)}.zst"

    @property
    def checkpoints(self) -> str:
        """The folder of its checkpoints, ending in a slash."""
        return f"{self.prefix}checkpoints/"

    def checkpoint_file(self, number: int, digest: str) -> str:
        """Return the key of a file, from the checkpoint that first stored it and its SHA-256."""
        return f"{self.checkpoints}files/{_numbered(number, 6)}-{checked_digest(digest)}"

    def checkpoint_manifest(self, number: int) -> str:
        """Return the key of the manifest of the checkpoint with this number, from 0."""
        return f"{self.checkpoints}{_numbered(number, 6)}.json"

    def chunk(self, digest: str) -> str:
        """Return the key of a chunk of an artifact, from its SHA-256."""
        return f"{self.prefix}chunks/{checked_digest(digest)}"

    def artifact(self, path: str) -> str:
        """Return the key of an artifact by its path in the output folder, with forward slashes.

        Raises:
            KeyInvalid: the path is absolute, contains `..`, or has a name that a store cannot hold.
        """
        return checked(f"{self.prefix}artifacts/{path}")

    def chunked_artifact(self, path: str) -> str:
        """Return the key of the list of an artifact's chunks; see `artifact`."""
        return checked(f"{self.prefix}chunked/{path}")


def _numbered(number: int, width: int) -> str:
    """Zero-pad a number, so that names sort in the order of numbers."""
    if not 0 <= number < 10**width:
        raise KeyInvalid(f"{number} does not fit in {width} digits")
    return f"{number:0{width}d}"

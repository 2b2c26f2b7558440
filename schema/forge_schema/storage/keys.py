"""The names of objects: made here, checked here, the same in every store."""

import re
import unicodedata
from dataclasses import dataclass
from uuid import UUID

from forge_schema.storage.errors import KeyInvalid

KEY_BYTES = 900  # S3 allows 1024, and the store's own prefix comes out of that
SEGMENT_BYTES = 255  # what a file system allows
RESERVED = ".forge-tmp"  # where the file store writes what is not yet an object

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")


def checked(key: str) -> str:
    """Return the key if every store can hold it.

    Raises:
        KeyInvalid: it is empty, too long, or could be read as a path that leaves the store.
    """
    if fault := _fault(key):
        raise KeyInvalid(f"{key!r} cannot name an object: {fault}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return the prefix, which is empty or the beginning of a valid key.

    Raises:
        KeyInvalid: no valid key begins like this.
    """
    if prefix:
        checked(prefix + "x" if prefix.endswith("/") else prefix)
    return prefix


def is_valid(key: str) -> bool:
    """Tell whether `checked` would let the key pass."""
    return _fault(key) is None


def _fault(key: str) -> str | None:
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not 0 < length <= KEY_BYTES:
        return f"its length must be 1 to {KEY_BYTES} bytes"
    if "\\" in key or any(unicodedata.category(char) == "Cc" for char in key):
        return "it has a backslash or a control character"
    return next((fault for part in key.split("/") if (fault := _segment_fault(part))), None)


def _segment_fault(segment: str) -> str | None:
    if segment in {"", ".", "..", RESERVED}:
        return f"{segment!r} is not allowed between its slashes"
    if len(segment.encode()) > SEGMENT_BYTES:
        return f"one of its names is over {SEGMENT_BYTES} bytes"
    return None


def checked_digest(digest: str) -> str:
    """Return the digest if it is a SHA-256 in lower-case hexadecimal.

    Raises:
        KeyInvalid: it is anything else.
    """
    if not _DIGEST.match(digest):
        raise KeyInvalid(f"{digest!r} is not a SHA-256 in lower-case hexadecimal")
    return digest


def bundle(digest: str) -> str:
    """Name the bundle with this SHA-256."""
    return f"bundles/{checked_digest(digest)}.tar.zst"


def image(digest: str) -> str:
    """Name the saved image with this SHA-256."""
    return f"images/{checked_digest(digest)}.tar"


@dataclass(frozen=True)
class AttemptKeys:
    """The names of what one attempt writes; the token keeps a late writer's objects apart."""

    job: UUID | str | int
    attempt: int
    token: UUID | str | int

    def __post_init__(self) -> None:
        for word in (self.job, self.attempt, self.token):
            if not _WORD.match(str(word)):
                raise KeyInvalid(f"{str(word)!r} cannot stand in an attempt's prefix")

    @property
    def prefix(self) -> str:
        """The attempt's own folder, with a slash at its end."""
        return f"jobs/{self.job}/{self.attempt}-{self.token}/"

    def log_chunk(self, number: int) -> str:
        """Name the log chunk with this number, from 0."""
        return f"{self.prefix}logs/{_numbered(number, 8)}.zst"

    @property
    def checkpoints(self) -> str:
        """The folder of its checkpoints, with a slash at its end."""
        return f"{self.prefix}checkpoints/"

    def checkpoint_file(self, number: int, digest: str) -> str:
        """Name a file by the checkpoint that stored it first, and its SHA-256."""
        return f"{self.checkpoints}files/{_numbered(number, 6)}-{checked_digest(digest)}"

    def checkpoint_manifest(self, number: int) -> str:
        """Name the manifest of the checkpoint with this number, from 0."""
        return f"{self.checkpoints}{_numbered(number, 6)}.json"

    def artifact(self, path: str) -> str:
        """Name an artifact by its path below the output folder, with forward slashes.

        Raises:
            KeyInvalid: the path is absolute, climbs, or has a name that a store cannot hold.
        """
        return checked(f"{self.prefix}artifacts/{path}")


def _numbered(number: int, width: int) -> str:
    """Zero-pad, so that the order of names is the order of numbers."""
    if not 0 <= number < 10**width:
        raise KeyInvalid(f"{number} does not fit in {width} digits")
    return f"{number:0{width}d}"

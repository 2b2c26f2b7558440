"""The interface of object stores, its errors, and what a probe of one finds."""

import os
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import size_text

Progress = Callable[[int], None]
"""Called with the bytes moved since the last call, in the thread that called the store."""

# A list of what a terabyte of files consists of takes as much.
MOST_BYTES = 4 << 20
PROBE_CONTENT = b"forge tries this store; it may be deleted"


class StoreError(ForgeError):
    """The store refused a request or failed. A retry may help or not."""


class ObjectMissing(StoreError):
    """There is no object with this key."""


class KeyInvalid(StoreError):
    """The key is not safe in every store."""


class ObjectTooLarge(StoreError):
    """The object is too large for one request to the store. A retry does not help."""


class StoreUnreachable(StoreError):
    """The store does not answer or denies access."""


class StoreDenied(StoreUnreachable):
    """The store does not allow this to these credentials."""

    code = StoreUnreachable.code


class StoreUnfit(StoreError):
    """The store does not offer something that Forge needs. A retry does not help."""


class StoreUrlInvalid(StoreError):
    """The store's URL is malformed, or names a bucket that does not exist."""


@dataclass(frozen=True)
class StoredObject:
    """One object in a listing; `size` is in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """An object to store, whose content is known; `size` is in bytes."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What a store copied and hashed, and whether it kept it as an object."""

    sha256: str
    kept: bool = False


class Objects(Protocol):
    """The objects of a store, or of one attempt. They appear completely or not at all.

    May be used from several threads. Every method may raise `StoreUnreachable`, and `KeyInvalid`
    for a key that is invalid or another attempt's; writing may raise `ObjectTooLarge`.
    """

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        """Prepare for objects that are written or read next, in as few requests as possible."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object. With `if_absent`, return False if it exists.

        False may also mean that this call's first try succeeded and only its answer was lost.
        Several writers of a bundle, a segment or an image, who all have the same content, may each
        be told that they were first.

        Raises:
            StoreUnfit: the store cannot tell which of several writers was the first.
        """

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        """Write an object from a file, as `put` does. A failure leaves nothing behind."""

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        """Write an object by a copy of a part of an open file; False if this store cannot.

        If the file ends before, so does the object; one that its key names is refused.
        """

    def put_unread(
        self,
        key: Callable[[str], str],
        file: BinaryIO,
        offset: int,
        size: int,
        wanted: Callable[[str], bool],
        /,
    ) -> Taken | None:
        """Copy and hash a part of an open file in one go; None if this store cannot.

        If `wanted` says so of its SHA-256, the copy is the object at the `key` for that, which ends
        in it.
        """

    def put_together(self, objects: Mapping[str, bytes]) -> bool:
        """Write up to 100 objects, 512 KiB in all, in one step; False if this store cannot.

        After an error, some of them may exist.
        """

    def get(self, key: str) -> bytes:
        """Read an object; `ObjectMissing` if it does not exist."""

    def stream(self, key: str) -> Generator[bytes, None, None]:
        """Yield an object's content in pieces of at most 1 MiB.

        Raises:
            ObjectMissing: it does not exist.
        """

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        """Read an object into a file, which appears complete and flushed, or not at all.

        Raises:
            ObjectMissing: it does not exist.
        """


class Store(Objects, Protocol):
    """An object store."""

    @property
    def url(self) -> str:
        """The URL it was opened with."""

    def size(self, key: str) -> int | None:
        """Return an object's size in bytes, or None if it does not exist."""

    def modified(self, key: str) -> datetime | None:
        """Return when an object was written last, or None if it does not exist."""

    def uploader(self, key: str) -> str | None:
        """Return the owner that a signed URL stored with the object, or None.

        Where the store did not check the upload, this reads the object: None if it is not the one
        that its key names.
        """

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose key begins with `prefix`, in any order: not all stores sort."""

    def delete(self, key: str) -> None:
        """Delete an object, if it exists."""

    def check(self) -> None:
        """Check within 15 seconds that the store answers.

        Raises:
            StoreUnreachable: it does not answer or denies access.
            StoreUrlInvalid: it answers that there is no such store.
        """

    def tidy(self, older_than_s: float) -> int:
        """Delete uploads that killed writers left unfinished this long ago; return their number."""


@contextmanager
def landing(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside `path`; if the block succeeds, flush it and move it there."""
    with unplaced(path.parent) as (file, temporary):
        yield file
        flush(file)
        temporary.replace(path)
        flush_folder(path.parent)


@contextmanager
def unplaced(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a new file in `folder` with a unique name; remove it afterwards unless moved."""
    temporary = folder / f".{secrets.token_hex(12)}.partial"
    try:
        with temporary.open("xb") as file:
            yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)


def flush(file: BinaryIO) -> None:
    """Flush a file's content to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ProbeVerdict(StrEnum):
    """What a finding means for Forge."""

    OK = "ok"
    WEAK = "weak"
    """Forge makes do, with a loss that the finding names."""
    FAILED = "failed"
    """It could not be tried, or these credentials may not do it."""
    UNFIT = "unfit"
    """Forge cannot work with this store."""


@dataclass(frozen=True)
class ProbeFinding:
    """What a probe found about one capability."""

    capability: str
    verdict: ProbeVerdict
    detail: str
    hint: str = ""


def failed_probe(capability: str, error: StoreError) -> ProbeFinding:
    """Return an error as a finding. One that may pass, or is about rights, rules nothing out."""
    lasts = isinstance(error, StoreUnfit | ObjectMissing)
    verdict = ProbeVerdict.UNFIT if lasts else ProbeVerdict.FAILED
    return ProbeFinding(capability, verdict, error.message, error.hint)


class SmallReadable(Protocol):
    """The part of a store that reads small objects."""

    def get(self, key: str) -> bytes: ...
    def size(self, key: str) -> int | None: ...


def small(store: SmallReadable, key: str, most: int = MOST_BYTES) -> bytes:
    """Return an object that is no larger than it may be.

    Raises:
        ObjectMissing: it does not exist.
        ObjectTooLarge: it is larger.
    """
    size = store.size(key)
    if size is not None and size > most:
        limit = size_text(most)
        raise ObjectTooLarge(f"the object {key} has {size_text(size)}; {limit} are read at once")
    return store.get(key)

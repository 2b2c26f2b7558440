"""Fetch files: several at once, large ones by chunks, each verified."""

import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import stamina
from forge_schema.storage import ObjectMissing, StoreUnreachable
from forge_schema.storage.manifest import CheckpointUnsound, Extent

from forge_worker.queue.objects import Objects
from forge_worker.transfers.threads import TRANSFERS, batches

TRIES = 2
NO_FOLDER = (FileExistsError, IsADirectoryError, NotADirectoryError)


class FetchedFile(Protocol):
    """A file to fetch, such as an `Entry`. An extent without SHA-256 is not compared with it."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def extents(self) -> Sequence[Extent]: ...


Wanted = tuple[FetchedFile, Extent]
Placed = Callable[[str, Extent, str], None]
"""Called with each part of a file that is in its place, and the SHA-256 of that part."""


class FileParts(Protocol):
    """Where the parts of files are read from. Thread-safe."""

    def expect(self, extents: Sequence[Extent]) -> None:
        """Prepare for parts that are read next."""

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        """Yield the content of a part, in pieces.

        Raises:
            StoreUnreachable: it cannot be read now.
            ObjectMissing: it does not exist.
        """


class StoredParts:
    """Parts that are objects of the store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def expect(self, extents: Sequence[Extent]) -> None:
        self._objects.expect(gets=[extent.key for extent in extents])

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        return self._objects.stream(extent.key)


class Fetcher:
    """Fetches files into a folder; after a failure, it goes on with those that are missing.

    Args:
        parts: where it reads.
        folder: where it writes.
        go_on: called for each piece; what it raises ends the transfer.
        there: paths and offsets of parts that the folder has; None if it is empty.
        placed: told of each part.
    """

    def __init__(
        self,
        parts: FileParts,
        folder: Path,
        go_on: Callable[[int], None],
        *,
        there: Iterable[tuple[str, int]] | None = None,
        placed: Placed = lambda _path, _extent, _sha256: None,
    ) -> None:
        self._parts = parts
        self._folder = folder
        self._go_on = go_on
        self._tell = placed
        self._empty = there is None
        self._placed = set[tuple[str, int]](there or ())
        # Parts that were written once, and so may be no holes any more.
        self._begun: set[tuple[str, int]] = set()

    def fetch(self, files: Iterable[FetchedFile]) -> None:
        """Fetch files.

        Raises:
            CheckpointUnsound: an object is missing or damaged, or a path lies below a file.
            StoreError: the store does not answer.
        """
        for _ in TRANSFERS.each(partial(self._fetch, few) for few in batches(self._left(files))):
            pass

    def _left(self, files: Iterable[FetchedFile]) -> Iterator[tuple[Wanted, int]]:
        for entry in files:
            for extent in entry.extents:
                if (entry.path, extent.offset) not in self._placed:
                    yield (entry, extent), extent.size

    def _fetch(self, batch: list[Wanted]) -> None:
        self._parts.expect([extent for _, extent in batch])
        for entry, extent in batch:
            try:
                self._place(entry, extent)
            except ObjectMissing as error:
                raise CheckpointUnsound(error.message) from error
            self._placed.add((entry.path, extent.offset))

    def _place(self, entry: FetchedFile, extent: Extent) -> None:
        with _below_a_folder(entry):
            path = self._folder / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            # Again, since it may only have been damaged in transit.
            if not any(self._placed_once(path, entry, extent) for _ in range(TRIES)):
                raise CheckpointUnsound(f"the stored file {entry.path} is damaged")

    def _placed_once(self, path: Path, entry: FetchedFile, extent: Extent) -> bool:
        part, digest = (entry.path, extent.offset), None
        for tried in stamina.retry_context(
            on=StoreUnreachable, attempts=TRIES, timeout=None, wait_initial=0.2, wait_max=2
        ):
            self._go_on(0)
            with tried, closing(self._parts.read(extent)) as pieces:
                holes = self._empty and part not in self._begun
                self._begun.add(part)
                digest = _write(path, entry.size, extent, self._wanted(pieces), holes=holes)
        if digest is None:
            return False
        self._tell(entry.path, extent, digest)
        return True

    def _wanted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._go_on(len(piece))
            yield piece


@contextmanager
def _below_a_folder(entry: FetchedFile) -> Iterator[None]:
    try:
        yield
    except NO_FOLDER as error:
        raise CheckpointUnsound(f"{entry.path!r} lies below a file") from error


def _write(
    path: Path, size: int, extent: Extent, pieces: Iterable[bytes], *, holes: bool
) -> str | None:
    """Write a part of a file of `size` bytes, and return its SHA-256; None if it is damaged.

    Zeros may become holes.
    """
    digest, offset = hashlib.sha256(), extent.offset
    end = extent.offset + extent.size
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(file, size)
        for piece in pieces:
            digest.update(piece)
            if offset + len(piece) > end:
                return None
            if not holes or not _empty(piece):
                _write_all(file, piece, offset)
            offset += len(piece)
    finally:
        os.close(file)
    found = digest.hexdigest()
    return found if offset == end and found == (extent.sha256 or found) else None


def _empty(piece: bytes) -> bool:
    # Most pieces do not begin with a zero, and comparing all costs time.
    return not any(piece[:1]) and piece == bytes(len(piece))


def _write_all(file: int, piece: bytes, offset: int) -> None:
    left = memoryview(piece)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written

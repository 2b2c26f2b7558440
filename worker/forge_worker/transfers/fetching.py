"""Fetch files: several at once, large ones by chunks, small ones out of packs, each verified."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

import stamina
from forge_schema.storage import ObjectMissing, Objects, StoreUnreachable
from forge_schema.storage.manifest import CheckpointUnsound, Extent

from forge_worker.transfers import MOST_THREADS, TRANSFERS, batches

TRIES = 2
# Batches whose URLs are asked for together: those of as many threads.
AHEAD = MOST_THREADS
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
        """Yield the content of a part, or of the pack that it is in, in pieces.

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
        self._made: set[str] = set()

    def fetch(self, files: Iterable[FetchedFile]) -> None:
        """Fetch files.

        Raises:
            CheckpointUnsound: an object is missing or damaged, or a path lies below a file.
            StoreError: the store does not answer.
        """
        alone: list[Wanted] = []
        packs: dict[str, list[Wanted]] = defaultdict(list)
        for entry in files:
            for extent in entry.extents:
                if (entry.path, extent.offset) not in self._placed:
                    (packs[extent.key] if extent.pack_bytes else alone).append((entry, extent))
        sized = ((pack, pack[0][1].pack_bytes) for pack in packs.values())
        # Two threads that write to one file wait for each other.
        alone.sort(key=lambda part: part[1].offset)
        calls: Iterator[Callable[[], None]] = chain(
            self._expected(batches((part, part[1].size) for part in alone)),
            (partial(self._fetch_packs, few) for few in batches(sized)),
        )
        for _ in TRANSFERS.each(calls):
            pass

    def _expected(self, each: Iterator[list[Wanted]]) -> Iterator[Callable[[], None]]:
        """Yield a call for each batch, and prepare for some of them at once."""
        while some := list(islice(each, AHEAD)):
            parts = [extent for batch in some for _, extent in batch]
            self._parts.expect(parts)
            yield from (partial(self._fetch, batch) for batch in some)

    def _fetch(self, batch: list[Wanted]) -> None:
        for entry, extent in batch:
            try:
                self._place(entry, extent)
            except ObjectMissing as error:
                raise CheckpointUnsound(error.message) from error
            self._placed.add((entry.path, extent.offset))

    def _fetch_packs(self, packs: list[list[Wanted]]) -> None:
        self._parts.expect([pack[0][1] for pack in packs])
        for pack in packs:
            pack.sort(key=lambda part: part[1].at)
            try:
                # Again, since it may only have been damaged in transit.
                damaged = self._unpack(pack) and self._unpack(pack)
            except ObjectMissing as error:
                raise CheckpointUnsound(error.message) from error
            if damaged:
                raise CheckpointUnsound(f"the stored file {damaged[0].path} is damaged")

    def _unpack(self, pack: Sequence[Wanted]) -> list[FetchedFile]:
        """Write files of a pack, and return the damaged ones."""
        damaged: list[FetchedFile] = []
        for tried in _patiently():
            self._go_on(0)
            with tried, closing(self._parts.read(pack[0][1])) as pieces:
                files = _unpacked(self._wanted(pieces), pack)
                damaged = [
                    entry for entry, extent, data in files if not self._put(entry, extent, data)
                ]
        return damaged

    def _put(self, entry: FetchedFile, extent: Extent, data: bytes) -> bool:
        """Write a small file, unless it is damaged."""
        if hashlib.sha256(data).hexdigest() != extent.sha256:
            return False
        with _below_a_folder(entry):
            file = _created(self._path(entry))
            try:
                os.ftruncate(file, len(data))
                if not (self._empty and _empty(data)):
                    _write_all(file, data, 0)
            finally:
                os.close(file)
        self._placed.add((entry.path, 0))
        self._tell(entry.path, extent, extent.sha256)
        return True

    def _path(self, entry: FetchedFile) -> str:
        """Return where a file belongs, in a folder that is there."""
        folder = entry.path.rpartition("/")[0]
        if folder not in self._made:
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        return f"{self._folder}/{entry.path}"

    def _place(self, entry: FetchedFile, extent: Extent) -> None:
        with _below_a_folder(entry):
            path = self._path(entry)
            # Again, since it may only have been damaged in transit.
            if not any(self._placed_once(path, entry, extent) for _ in range(TRIES)):
                raise CheckpointUnsound(f"the stored file {entry.path} is damaged")

    def _placed_once(self, path: str, entry: FetchedFile, extent: Extent) -> bool:
        part, digest = (entry.path, extent.offset), None
        for tried in _patiently():
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


def _patiently() -> Iterable[stamina.Attempt]:
    return stamina.retry_context(
        on=StoreUnreachable, attempts=TRIES, timeout=None, wait_initial=0.2, wait_max=2
    )


def _unpacked(
    pieces: Iterator[bytes], pack: Iterable[Wanted]
) -> Iterator[tuple[FetchedFile, Extent, bytes]]:
    """Yield files of a pack, which are sorted, with what is there of each."""
    held, begin = bytearray(), 0
    for entry, extent in pack:
        while begin + len(held) < extent.at + extent.size and (piece := next(pieces, b"")):
            # What lies before it is in no file, or in one that was written.
            skipped = min(len(held), extent.at - begin)
            del held[:skipped]
            begin += skipped
            held += piece
        with memoryview(held) as view:
            data = bytes(view[extent.at - begin :][: extent.size])
        yield entry, extent, data


@contextmanager
def _below_a_folder(entry: FetchedFile) -> Iterator[None]:
    try:
        yield
    except NO_FOLDER as error:
        raise CheckpointUnsound(f"{entry.path!r} lies below a file") from error


def _created(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _write(
    path: str, size: int, extent: Extent, pieces: Iterable[bytes], *, holes: bool
) -> str | None:
    """Write a part of a file of `size` bytes, and return its SHA-256; None if it is damaged.

    Zeros may become holes.
    """
    digest, offset = hashlib.sha256(), extent.offset
    end = extent.offset + extent.size
    file = _created(path)
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
    sha256 = digest.hexdigest()
    return sha256 if offset == end and sha256 == (extent.sha256 or sha256) else None


def _empty(piece: bytes) -> bool:
    # Most pieces do not begin with a zero, and comparing all costs time.
    return not any(piece[:1]) and piece == bytes(len(piece))


def _write_all(file: int, piece: bytes, offset: int) -> None:
    left = memoryview(piece)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written

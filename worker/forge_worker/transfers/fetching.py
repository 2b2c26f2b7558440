"""Fetch a checkpoint's files: several at once, large ones by chunks, each verified."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import stamina
from forge_schema.storage import ObjectMissing, StoreUnreachable
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Extent

from forge_worker.queue.objects import Objects
from forge_worker.transfers.threads import TRANSFERS, batches

TRIES = 2
NO_FOLDER = (FileExistsError, IsADirectoryError, NotADirectoryError)

Wanted = tuple[Entry, Extent]


class Fetcher:
    """Fetches files into a folder; after a failure, it goes on with those that are missing."""

    def __init__(self, objects: Objects, folder: Path, go_on: Callable[[int], None]) -> None:
        self._objects = objects
        self._folder = folder
        self._go_on = go_on
        self._placed: set[tuple[str, int]] = set()
        # Parts that were written once, and so may be no holes any more.
        self._begun: set[tuple[str, int]] = set()

    def fetch(self, files: Iterable[Entry]) -> None:
        """Fetch files.

        Raises:
            CheckpointUnsound: an object is missing or damaged, or a path lies below a file.
            StoreError: the store does not answer.
        """
        for _ in TRANSFERS.each(partial(self._fetch, few) for few in batches(self._left(files))):
            pass

    def _left(self, files: Iterable[Entry]) -> Iterator[tuple[Wanted, int]]:
        for entry in files:
            for extent in entry.extents:
                if (entry.path, extent.offset) not in self._placed:
                    yield (entry, extent), extent.size

    def _fetch(self, batch: list[Wanted]) -> None:
        self._objects.expect(gets=[extent.key for _, extent in batch])
        for entry, extent in batch:
            self._go_on(0)
            try:
                self._place(entry, extent)
            except ObjectMissing as error:
                raise CheckpointUnsound(error.message) from error
            self._placed.add((entry.path, extent.offset))

    def _place(self, entry: Entry, extent: Extent) -> None:
        with _below_a_folder(entry):
            path = self._folder / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            # Again, since it may only have been damaged in transit.
            if not any(self._placed_once(path, entry, extent) for _ in range(TRIES)):
                raise CheckpointUnsound(f"the stored file {entry.path} is damaged")

    def _placed_once(self, path: Path, entry: Entry, extent: Extent) -> bool:
        part, placed = (entry.path, extent.offset), False
        for tried in stamina.retry_context(
            on=StoreUnreachable, attempts=TRIES, timeout=None, wait_initial=0.2, wait_max=2
        ):
            with tried, closing(self._objects.stream(extent.key)) as pieces:
                holes = part not in self._begun
                self._begun.add(part)
                placed = _write(path, entry.size, extent, pieces, holes=holes)
        return placed


@contextmanager
def _below_a_folder(entry: Entry) -> Iterator[None]:
    try:
        yield
    except NO_FOLDER as error:
        raise CheckpointUnsound(f"{entry.path!r} lies below a file") from error


def _write(path: Path, size: int, extent: Extent, pieces: Iterable[bytes], *, holes: bool) -> bool:
    """Write a part of a file of `size` bytes; False if it is damaged. Zeros may become holes."""
    digest, offset = hashlib.sha256(), extent.offset
    end = extent.offset + extent.size
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(file, size)
        for piece in pieces:
            digest.update(piece)
            if offset + len(piece) > end:
                return False
            if not holes or not _empty(piece):
                _write_all(file, piece, offset)
            offset += len(piece)
    finally:
        os.close(file)
    return offset == end and digest.hexdigest() == extent.sha256


def _empty(piece: bytes) -> bool:
    # Most pieces do not begin with a zero, and comparing all costs time.
    return not any(piece[:1]) and piece == bytes(len(piece))


def _write_all(file: int, piece: bytes, offset: int) -> None:
    left = memoryview(piece)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written

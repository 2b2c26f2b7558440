"""Store files: several at once, large ones in chunks, none that the attempt has stored already."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from forge_schema.storage import Objects, ObjectTooLarge, Piece, Taken

from forge_worker.files.copies import FileChanged
from forge_worker.transfers import REQUESTS, TRANSFERS, batches

# An object of up to this size takes less time than a request of its own.
SMALL_BYTES = 64 << 10
# Base64 adds a third, and a proxy in front of a server may limit bodies to 1 MiB.
TOGETHER_BYTES = 512 << 10

# What takes longer to hash than to ask for a URL without its SHA-256.
UNREAD_BYTES = 8 << 20
# What is hashed at once still lies in the processor's cache.
HASHED_BYTES = 256 << 10

Read = Callable[[int, int], bytes]
"""Reads a number of bytes at an offset."""
Open = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens a file for a store that can copy it; raises `FileChanged` if it was changed meanwhile."""


class StoredChunks:
    """Keys of stored objects by their SHA-256. Thread-safe.

    Those stored since the last `reset` are also written to a file, one a line, so that an upload
    that was interrupted is resumed.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = Lock()
        self._keys: dict[str, str] = {}

    def reset(self, keys: Mapping[str, str]) -> None:
        """Know these alone."""
        with self._lock:
            self._keys = dict(keys)
            self._journal.unlink(missing_ok=True)

    def resume(self, keys: Mapping[str, str], after: str) -> None:
        """Know these, and those that an earlier agent stored whose keys sort after one."""
        with self._lock:
            lines = [line.partition(" ") for line in self._lines()]
            self._keys = {sha256: key for sha256, _, key in lines if key > after}
            self._keys.update(keys)

    def claim(self, sha256: str, key: str) -> tuple[str, bool]:
        """Return an object's key, and whether the caller must store it there."""
        with self._lock:
            known = self._keys.setdefault(sha256, key)
            return known, known is key

    def confirm(self, sha256: str, key: str) -> None:
        """Record that an object was stored; `OSError` if this machine's disk is full or faulty."""
        with self._lock, self._journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{sha256} {key}\n")

    @property
    def resumes(self) -> bool:
        """Whether something was stored since the last `reset`."""
        return self._journal.exists()

    def release(self, sha256: str) -> None:
        """Forget an object that could not be stored."""
        with self._lock:
            self._keys.pop(sha256, None)

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._keys

    def _lines(self) -> list[str]:
        if not self._journal.exists():
            return []
        # The last line may have been cut off.
        return self._journal.read_text(encoding="utf-8").split("\n")[:-1]


@dataclass(eq=False)
class FileSource:
    """A file to store: `size` bytes, in pieces of `piece_bytes` that are read in order.

    `key` is the file's own: it names the object of a file in one piece. Otherwise, pieces are named
    by their content. `left` counts the pieces to store; `refused` is set if the store does not
    accept an object of that size. With `open`, all but small files are hashed first, and only what
    is not stored yet is read into memory, one piece a thread, or copied by the store itself, from
    `begins_at` on in the opened file. Of a file that `is_new`, so that hardly any piece is stored,
    a store that can do both at once copies and hashes each.
    """

    path: str
    size: int
    read: Read
    piece_bytes: int
    key: str | None = None
    open: Open | None = None
    begins_at: int = 0
    is_new: bool = False
    refused: ObjectTooLarge | None = None
    left: int = field(init=False)
    _whole: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _offset: int = 0
    _lock: Lock = field(default_factory=Lock)
    _digests: dict[int, str] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = max(1, -(-self.size // self.piece_bytes))

    @property
    def chunked(self) -> bool:
        return self.size > self.piece_bytes

    @property
    def hashed_first(self) -> bool:
        return self.open is not None and (self.chunked or self.size > SMALL_BYTES)

    @property
    def sha256(self) -> str:
        """The SHA-256 of a file with its own key, once it was read."""
        return self._whole.hexdigest()

    @property
    def digests(self) -> list[str]:
        """The SHA-256 of each piece, once all are stored."""
        return [self._digests[offset] for offset in sorted(self._digests)]

    @property
    def keys(self) -> list[str]:
        """The key of each piece, once all are stored."""
        return [self._keys[offset] for offset in sorted(self._keys)]

    def pieces(self) -> Iterator[tuple["FileSource", int]]:
        """Yield this once for each piece, with the piece's size."""
        for offset in range(0, max(1, self.size), self.piece_bytes):
            yield self, min(self.piece_bytes, self.size - offset)

    def next(self) -> tuple[int, bytes]:
        """Read the next piece, and return its offset and content.

        Raises:
            FileChanged: the file ends before its size.
        """
        with self._lock:
            offset = self._offset
            expected = min(self.piece_bytes, self.size - offset)
            data = self.content(offset, expected)
            self._offset += expected
            if self.key is not None:
                self._whole.update(data)
            return offset, data

    def step(self) -> tuple[int, int]:
        """Return the offset and size of the next piece, which the caller hashes."""
        with self._lock:
            offset, size = self._offset, min(self.piece_bytes, self.size - self._offset)
            self._offset += size
            return offset, size

    def hashed(self, offset: int, size: int) -> str:
        """Return the SHA-256 of a part; `FileChanged` if the file ends before its size."""
        digest = hashlib.sha256()
        for start in range(offset, offset + size, HASHED_BYTES):
            digest.update(self.content(start, min(HASHED_BYTES, offset + size - start)))
        return digest.hexdigest()

    def content(self, offset: int, size: int) -> bytes:
        """Read a part; `FileChanged` if the file ends before its size."""
        data = self.read(offset, size)
        if len(data) != size:
            raise FileChanged(f"{self.path!r} became shorter while it was read")
        return data

    def record(self, offset: int, sha256: str, key: str) -> None:
        """Record which object is the piece at an offset."""
        self._digests[offset], self._keys[offset] = sha256, key

    def count_stored(self) -> None:
        """Count one more piece that is stored."""
        with self._lock:
            self.left -= 1


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A piece of a source: what was read, or None if it was only hashed, or `kept`, too."""

    source: FileSource
    offset: int
    size: int
    sha256: str
    key: str
    data: bytes | None
    kept: bool = False

    @property
    def named(self) -> bool:
        """Whether its object is named by its content."""
        return self.source.key is None or self.source.chunked

    @property
    def content(self) -> bytes:
        """What was read, or is read now."""
        if self.data is not None:
            return self.data
        return self.source.content(self.offset, self.size)


class FileSender:
    """Stores files; content that is known to be stored is not sent again.

    Args:
        objects: the store.
        stored: what is known to be stored, which grows.
        key: returns the key of an object by its SHA-256.
        go_on: called before each piece; what it raises ends the transfer.
    """

    def __init__(
        self,
        objects: Objects,
        stored: StoredChunks,
        key: Callable[[str], str],
        go_on: Callable[[], None],
    ) -> None:
        self._objects = objects
        self._stored = stored
        self._key = key
        self._go_on = go_on

    def send(self, sources: Iterable[FileSource]) -> None:
        """Store files, and record their pieces in them.

        Raises:
            StoreError: the store does not answer.
            OSError: a file cannot be read.
        """
        pieces = (piece for source in sources for piece in source.pieces())
        for _ in TRANSFERS.each(partial(self._send, batch) for batch in batches(pieces)):
            pass

    def _send(self, batch: list[FileSource]) -> None:
        parts = [self._read(source) for source in batch]
        fresh = [part for part in parts if self._claimed(part)]
        left = {part.sha256 for part in fresh if part.named}
        try:
            self._put_all(fresh, left)
        finally:
            for sha256 in left:
                self._stored.release(sha256)

    def _read(self, source: FileSource) -> SourcePart:
        self._go_on()
        if source.hashed_first:
            offset, size = source.step()
            taken = self._taken(source, offset, size) or Taken(source.hashed(offset, size))
            named = self._key(taken.sha256)
            return SourcePart(source, offset, size, taken.sha256, named, None, taken.kept)
        offset, data = source.next()
        sha256 = hashlib.sha256(data).hexdigest()
        key = source.key
        if key is None or source.chunked:
            key = self._key(sha256)
        return SourcePart(source, offset, len(data), sha256, key, data)

    def _taken(self, source: FileSource, offset: int, size: int) -> Taken | None:
        """Have the store copy and hash a new piece; None if it cannot.

        If the file was changed meanwhile, the object is not what the file was, and is never
        confirmed.
        """
        if not source.is_new or source.open is None or size < UNREAD_BYTES:
            return None
        with source.open() as file:
            begins_at = source.begins_at + offset
            return self._objects.put_unread(
                self._key, file, begins_at, size, lambda sha256: sha256 not in self._stored
            )

    def _claimed(self, part: SourcePart) -> bool:
        """Record where a part is stored, and return whether it must be sent there."""
        key, fresh = self._stored.claim(part.sha256, part.key) if part.named else (part.key, True)
        part.source.record(part.offset, part.sha256, key)
        if not fresh:
            part.source.count_stored()
        return fresh

    def _put_all(self, parts: list[SourcePart], left: set[str]) -> None:
        """Store parts, small ones together; those that are stored leave the set."""
        small = (
            (part, part.size)
            for part in parts
            if part.data is not None and part.size <= SMALL_BYTES
        )
        together = set[str]()
        for few in batches(small, TOGETHER_BYTES):
            self._go_on()
            contents = {part.key: part.content for part in few}
            if len(few) > 1 and self._objects.put_together(contents):
                together |= contents.keys()
                for part in few:
                    self._confirm(part, left)
        for part in parts:
            if part.kept:
                self._confirm(part, left)
        alone = [part for part in parts if not part.kept and part.key not in together]
        self._objects.expect(puts=[Piece(piece.key, piece.size, piece.sha256) for piece in alone])
        for _ in REQUESTS.each(partial(self._put, part, left) for part in alone):
            pass

    def _put(self, part: SourcePart, left: set[str]) -> None:
        self._go_on()
        try:
            self._store(part)
        except ObjectTooLarge as error:
            part.source.refused = error
        else:
            self._confirm(part, left)

    def _store(self, part: SourcePart) -> None:
        """Store a part, by the store itself if it was only hashed and the store can copy it.

        If it was changed since, its object is not what it is named for, and is never confirmed.
        """
        if part.data is None and part.source.open is not None:
            with part.source.open() as file:
                begins_at = part.source.begins_at + part.offset
                if self._objects.put_part(part.key, file, begins_at, part.size):
                    return
        self._objects.put(part.key, part.content)

    def _confirm(self, part: SourcePart, left: set[str]) -> None:
        if part.named:
            self._stored.confirm(part.sha256, part.key)
            left.discard(part.sha256)
        part.source.count_stored()

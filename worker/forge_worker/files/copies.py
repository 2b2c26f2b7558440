"""Copy a job's files: bounded in size, and never torn while the job writes to them.

The copies belong to the agent, never follow the job's links, and are not counted by the disk watch.
A sparse file can claim far more than it occupies, and a file can have many names, so the size is
checked first.

A copy is whole if the file did not change during the copy, and nobody has it open for writing or
has written to it recently, and if it is not half of a model file: its program may have been killed
while it was writing. A file that is still being written is accepted if it has only grown, so
that the part stored before is its beginning.

A large file that nobody writes to is not copied, but held open: whoever replaces it leaves the open
file as it is, and whoever rewrites it in place is noticed afterwards. Small files are copied one
after the other into one file: to make one for each takes longer than their content.
"""

import hashlib
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from forge_schema.storage.manifest import tree_digest

from forge_worker.files.formats.folders import is_half
from forge_worker.files.formats.records import whole_records
from forge_worker.files.rest import (
    OPEN_QUIET_NS,
    after_its_tick,
    in_memory,
    open_for_writing,
    rests,
)
from forge_worker.files.safe_files import PIECE, Status, copy, opened, status_in

Doubt = Callable[[BinaryIO, Status], bool]
"""Tells whether a file may be half because its program was killed."""


class FileShape(Enum):
    """State of a copy: the whole file, or possibly half of a rewrite.

    Or of a file that goes on changing: its beginning, if it has only grown, or what it was at one
    moment.
    """

    WHOLE = "whole"
    GROWN = "grown"
    MOMENT = "moment"
    TORN = "torn"


class FileChanged(OSError):
    """A file was rewritten in place while it was read."""


@dataclass(frozen=True, slots=True)
class CopiedPart:
    """Digest of the first `size` bytes of a file; `stored` is False if they were only seen.

    With `chunk_bytes`, it is the digest of a file in chunks. `since_ns` is when it was first seen.
    """

    size: int
    sha256: str
    stored: bool = True
    chunk_bytes: int = 0
    since_ns: int = 0


# Nothing is known of a file that could not be copied.
UNSEEN = CopiedPart(0, hashlib.sha256().hexdigest(), stored=False)


@dataclass(frozen=True, slots=True)
class Copy:
    """The first `size` bytes of a file at the time it had this status.

    They are a copy, or the file itself, which is held open: then it may still be rewritten, but not
    replaced or removed. `seen` is the digest of a torn copy. `written` tells whether a process may
    have been able to write to the file meanwhile. The copy of a small file has a `sha256`, and lies
    in `path` from `at` on; it has no path if its content is stored already.
    """

    status: Status
    size: int
    shape: FileShape
    path: Path | None = None
    held: BinaryIO | None = None
    seen: CopiedPart | None = None
    written: bool = False
    sha256: str = ""
    at: int = 0

    @property
    def sound(self) -> bool:
        return self.shape is not FileShape.TORN

    @property
    def is_stored(self) -> bool:
        """Whether its content was stored before, so that there is no copy."""
        return bool(self.sha256) and self.path is None

    @property
    def changed(self) -> bool:
        """Whether a file that is held open was rewritten."""
        return self.held is not None and status_in(self.held) != self.status

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open it for the block.

        Raises:
            FileChanged: the file was rewritten by the end of the block.
        """
        if self.path is not None:
            with self.path.open("rb", buffering=0) as file:
                yield file
            return
        assert self.held is not None  # noqa: S101  it is one or the other
        try:
            yield self.held
        finally:
            # A store may have refused what it became.
            if self.changed:
                raise FileChanged("it was rewritten while it was stored")

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at an offset; `FileChanged` if the file was rewritten."""
        if self.path is not None:
            return read_at(self.path, self.at + offset, size)
        assert self.held is not None  # noqa: S101  it is one or the other
        data = os.pread(self.held.fileno(), size, offset)
        if self.changed:
            raise FileChanged("it was rewritten while it was read")
        return data


Copies = dict[str, Copy]
"""A copy of each file, by its path."""


class SmallCopies:
    """Copies of small files, one after the other in one file, and one for each content.

    Args:
        path: the file, to which copies are appended.
        most_bytes: the size of the largest of them.
        stored: the SHA-256 of contents that are stored, of which no copy is made.
        files: closes the file.
    """

    def __init__(
        self, path: Path, most_bytes: int, stored: Container[str], files: ExitStack
    ) -> None:
        self._path = path
        self.most_bytes = most_bytes
        self._stored = stored
        self._files = files
        self._begins: dict[str, int] = {}

    def add(self, status: Status, data: bytes, *, written: bool) -> Copy:
        """Copy the content of a file that has this status."""
        sha256 = hashlib.sha256(data).hexdigest()
        made = partial(Copy, status, len(data), FileShape.WHOLE, written=written, sha256=sha256)
        if sha256 in self._stored:
            return made()
        if sha256 not in self._begins:
            self._begins[sha256] = self._file.tell()
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        return made(path=self._path, at=self._begins[sha256])

    @cached_property
    def _file(self) -> FileIO:
        return self._files.enter_context(self._path.open("ab", buffering=0))


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Read `size` bytes of a file at an offset, or fewer if it ends there."""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def held_open(
    root: Path, relative: str, files: ExitStack, *, ended: bool, doubt: Doubt | None = None
) -> Copy | None:
    """Hold a file open until `files` is closed, in place of a copy; None if it is being written.

    Raises:
        OSError: it cannot be read.
    """
    with ExitStack() as opening:
        source = opening.enter_context(opened(root, relative))
        status, clear = after_its_tick(source)
        written = None if ended else open_for_writing(source)
        if (
            not clear
            or not (ended or rests(source, status, written=written))
            or is_half(source, relative, status[0])
            or (doubt is not None and doubt(source, status))
        ):
            return None
        files.push(opening.pop_all())
        opened_too = not ended and written is not False
        return Copy(status, status[0], FileShape.WHOLE, held=source, written=opened_too)


def steady_copy(
    root: Path,
    relative: str,
    place: Callable[[], Path],
    known: CopiedPart | None,
    go_on: Callable[[], None],
    *,
    small: SmallCopies,
    ended: bool,
    seen: CopiedPart | None = None,
    doubt: Doubt | None = None,
) -> Copy:
    """Copy a file of which `known` was stored or seen before; `ended` if its job has ended.

    A small one that is whole goes to `small`, any other to `place`. `seen` is what the last look
    saw of it. What `go_on` raises ends the copy.

    Raises:
        OSError: it cannot be read, or this machine's disk is full or faulty.
    """
    with opened(root, relative) as source:
        status, clear = after_its_tick(source)
        go_on()
        copied: Path | bytes
        if status[0] <= small.most_bytes:
            copied = source.read(status[0])
        else:
            copied = place()
            copy(source, copied, status[0], go_on)
        unchanged = clear and status_in(source) == status
        written = None if ended else open_for_writing(source)
        whole = unchanged and (ended or rests(source, status, written=written))
        if unchanged and not whole and in_memory(os.fstat(source.fileno()).st_dev):
            whole = _seen_long_ago(copied, seen)
        whole = whole and not is_half(source, relative, status[0])
        whole = whole and not (doubt is not None and doubt(source, status))
    opened_too = not ended and written is not False
    if isinstance(copied, bytes):
        if whole:
            return small.add(status, copied, written=opened_too)
        into = place()
        into.write_bytes(copied)
    else:
        into = copied
    if whole:
        return Copy(status, into.stat().st_size, FileShape.WHOLE, into, written=opened_too)
    return _grown(into, status, known, seen, written=opened_too)


def _seen_long_ago(copied: Path | bytes, seen: CopiedPart | None) -> bool:
    """Tell whether a file has had the same content since a look that is long ago."""
    if seen is None or time.time_ns() - seen.since_ns < OPEN_QUIET_NS:
        return False
    if isinstance(copied, bytes):
        return (seen.size, seen.sha256) == (len(copied), hashlib.sha256(copied).hexdigest())
    return seen.size == copied.stat().st_size and seen.sha256 == _digest(copied, seen.size)


def _grown(
    copied: Path,
    status: Status,
    known: CopiedPart | None,
    seen: CopiedPart | None,
    *,
    written: bool,
) -> Copy:
    """Return a copy of a file that is being written, marked as grown or torn.

    A file of lines or records that was never stored counts up to its last whole one, once its
    beginning has been seen before. Anything else could be the first half of a file written for the
    first time.
    """
    size = copied.stat().st_size
    grown = known is not None and _begins_with(copied, known)
    if grown and known is not None and not (known.stored and known.size):
        size = whole_records(copied) or _lines(copied)
        grown = size > 0
    if grown:
        os.truncate(copied, size)
        return Copy(status, size, FileShape.GROWN, copied, written=written)
    digest = _digest(copied, size)
    same = seen is not None and (seen.size, seen.sha256) == (size, digest)
    since_ns = seen.since_ns if seen is not None and same else time.time_ns()
    part = CopiedPart(size, digest, stored=False, since_ns=since_ns)
    return Copy(status, size, FileShape.TORN, copied, seen=part, written=written)


def _begins_with(copied: Path, known: CopiedPart) -> bool:
    if not known.chunk_bytes:
        return _digest(copied, known.size) == known.sha256
    starts = range(0, known.size, known.chunk_bytes)
    ends = [min(start + known.chunk_bytes, known.size) for start in starts]
    chunks = (read_at(copied, start, end - start) for start, end in zip(starts, ends, strict=True))
    return tree_digest(hashlib.sha256(chunk).hexdigest() for chunk in chunks) == known.sha256


def _digest(path: Path, size: int) -> str:
    """Return the SHA-256 of the first `size` bytes of a file, or of all if it is shorter."""
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while piece := file.read(min(PIECE, left)):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def _lines(path: Path) -> int:
    """Return the length in bytes of a text file's whole lines; 0 for a binary file."""
    end = place = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            if b"\0" in piece:
                return 0
            if b"\n" in piece:
                end = place + piece.rindex(b"\n") + 1
            place += len(piece)
    return end

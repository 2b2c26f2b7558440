"""Copy a job's files: bounded in size, and never torn while the job writes to them.

The copies belong to the agent, never follow the job's links, and are not counted by the disk watch.
A sparse file can claim far more than it occupies, and a file can have many names, so the size is
checked first.

A copy is whole if the file did not change during the copy, and nobody has it open for writing or
has written to it recently, and if it is not half of a model file: its program may have been killed
while it was writing. A file that is still being written is accepted if it has only grown, so
that the part stored before is its beginning.

A large file that nobody writes to is not copied, but held open: whoever replaces it leaves the open
file as it is, and whoever rewrites it in place is noticed afterwards.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from signal import SIGURG
from typing import BinaryIO

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import MIB, size_text
from forge_schema.storage.chunks import tree_digest

from forge_worker.files.formats import is_half
from forge_worker.files.safe_files import Listing, Status, opened, status_in

PIECE = 1 << 16
# Granularity of the kernel's file timestamps: two writes within it can have the same mtime.
TICK_NS = 20_000_000
# A file that is open for writing counts as whole after this time without a write …
OPEN_QUIET_NS = 30_000_000_000
# … and after this time if the file system cannot tell whether it is open.
QUIET_NS = 2_000_000_000


class DiskFull(ForgeError):
    """The files to store are larger than the job's disk request."""

    code = "disk_full"


def check_size(files: Listing, what: str, limit_mb: int) -> None:
    """Refuse files whose copies would be too large, counting every name and filling holes.

    Raises:
        DiskFull: the copies would exceed `limit_mb` MiB.
    """
    size = sum(size for size, _, _ in files.values())
    if size > limit_mb << 20:
        raise DiskFull(
            f"{what} would be {size_text(size)}, with the holes of sparse files and with each name"
            f" of a file, but the job requested {size_text(limit_mb * MIB)} of disk",
            hint="request more with --disk, or write less there",
        )


def copy(source: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
    """Copy the first `size` bytes of a file, keeping it sparse.

    `go_on` is called before each piece; what it raises ends the copy.

    Raises:
        OSError: this machine's disk is full or faulty.
    """
    with into.open("wb") as target:
        left = size
        while piece := source.read(min(PIECE, left)):
            go_on()
            left -= len(piece)
            if piece == bytes(len(piece)):
                target.seek(len(piece), os.SEEK_CUR)
            else:
                target.write(piece)
        target.truncate()


class Shape(Enum):
    """State of a copy: the whole file, one that has only grown, or possibly half of a rewrite."""

    WHOLE = "whole"
    GROWN = "grown"
    TORN = "torn"


class FileChanged(OSError):
    """A file was rewritten in place while it was read."""


@dataclass(frozen=True, slots=True)
class Part:
    """Digest of the first `size` bytes of a file; `stored` is False if they were only seen.

    With `chunk_bytes`, it is the digest of a file in chunks.
    """

    size: int
    sha256: str
    stored: bool = True
    chunk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """The first `size` bytes of a file at the time it had this status.

    They are a copy, or the file itself, which is held open: then it may still be rewritten, but not
    replaced or removed. `seen` is the digest of a torn copy.
    """

    status: Status
    size: int
    shape: Shape
    path: Path | None = None
    held: BinaryIO | None = None
    seen: Part | None = None

    @property
    def sound(self) -> bool:
        return self.shape is not Shape.TORN

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
        yield self.held
        if self.changed:
            raise FileChanged("it was rewritten while it was stored")

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at an offset.

        Raises:
            FileChanged: the file was rewritten.
        """
        if self.path is not None:
            return read_at(self.path, offset, size)
        assert self.held is not None  # noqa: S101  it is one or the other
        data = os.pread(self.held.fileno(), size, offset)
        if self.changed:
            raise FileChanged("it was rewritten while it was read")
        return data


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Read `size` bytes of a file at an offset, or fewer if it ends there."""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def held_open(root: Path, relative: str, files: ExitStack, *, ended: bool) -> Copy | None:
    """Hold a file open until `files` is closed, in place of a copy; None if it is being written.

    Raises:
        OSError: it cannot be read.
    """
    with ExitStack() as opening:
        source = opening.enter_context(opened(root, relative))
        status, clear = _after_its_tick(source)
        if (
            not clear
            or not (ended or _rests(source, status))
            or is_half(source, relative, status[0])
        ):
            return None
        files.push(opening.pop_all())
        return Copy(status, status[0], Shape.WHOLE, held=source)


def steady_copy(
    root: Path,
    relative: str,
    into: Path,
    known: Part | None,
    go_on: Callable[[], None],
    *,
    ended: bool,
) -> Copy:
    """Copy a file of which `known` was stored or seen before; `ended` if its job has ended.

    What `go_on` raises ends the copy.

    Raises:
        OSError: it cannot be read, or this machine's disk is full or faulty.
    """
    with opened(root, relative) as source:
        status, clear = _after_its_tick(source)
        copy(source, into, status[0], go_on)
        unchanged = clear and status_in(source) == status
        whole = unchanged and (ended or _rests(source, status))
        whole = whole and not is_half(source, relative, status[0])
    if whole:
        return Copy(status, into.stat().st_size, Shape.WHOLE, into)
    return _grown(into, status, known)


def _grown(copied: Path, status: Status, known: Part | None) -> Copy:
    """Return a copy of a file that is being written, marked as grown or torn.

    A text file that was never stored counts up to its last whole line, once its beginning has been
    seen
    before. Anything else could be the first half of a file written for the first time.
    """
    size = copied.stat().st_size
    grown = known is not None and _begins_with(copied, known)
    if grown and known is not None and not known.stored:
        size = _lines(copied) or size
        grown = _lines(copied) > 0
    if grown:
        os.truncate(copied, size)
        return Copy(status, size, Shape.GROWN, copied)
    seen = Part(size, _digest(copied, size), stored=False)
    return Copy(status, size, Shape.TORN, copied, seen=seen)


def _begins_with(copied: Path, known: Part) -> bool:
    if not known.chunk_bytes:
        return _digest(copied, known.size) == known.sha256
    starts = range(0, known.size, known.chunk_bytes)
    ends = [min(start + known.chunk_bytes, known.size) for start in starts]
    chunks = (read_at(copied, start, end - start) for start, end in zip(starts, ends, strict=True))
    return tree_digest(hashlib.sha256(chunk).hexdigest() for chunk in chunks) == known.sha256


def _rests(source: BinaryIO, status: Status) -> bool:
    written = _open_for_writing(source.fileno())
    quiet_ns = 0 if written is False else OPEN_QUIET_NS if written else QUIET_NS
    return abs(time.time_ns() - status[1]) >= quiet_ns


def _open_for_writing(file: int) -> bool | None:
    """Return whether any process has a file open for writing; None if the system cannot tell."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # A process that opens the file now waits until the lease is released below, and this
        # process gets a signal. SIGURG is ignored, but the default SIGIO would end the process.
        fcntl.fcntl(file, fcntl.F_SETSIG, SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _after_its_tick(source: BinaryIO) -> tuple[Status, bool]:
    """Return a file's status, and whether every later write is sure to change it."""
    status = status_in(source)
    if not _outside_its_tick(status):
        time.sleep(TICK_NS / 1e9)
        status = status_in(source)
    return status, _outside_its_tick(status)


def _outside_its_tick(status: Status) -> bool:
    return abs(time.time_ns() - status[1]) >= TICK_NS


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

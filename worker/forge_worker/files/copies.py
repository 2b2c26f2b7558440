"""Copies of a job's files: bounded in size, and of files that are still written never torn.

They belong to the agent, no link of the job leads elsewhere, and no disk watch weighs them. A file
may claim to be far larger than what it has on the disk, and may have many names, so the size is
checked first.

A copy is whole when the file did not change meanwhile, and nobody has it open for writing or has
written to it for long. A file that is being written still counts if it has only grown: then what
was stored of it before is its beginning.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from signal import SIGURG
from typing import BinaryIO

from forge_schema.model.errors import ForgeError

from forge_worker.files.safe_files import Listing, Status, opened, status_in

PIECE = 1 << 16
# The kernel's clock for files stands still for so long: a write in that time leaves no trace.
TICK_NS = 20_000_000
# A file that is open for writing counts as whole when it was not written to for so long …
OPEN_QUIET_NS = 30_000_000_000
# … and where the file system does not tell whether it is open, when it was not for so long.
QUIET_NS = 2_000_000_000


class DiskFull(ForgeError):
    """What a job wants stored is larger than the disk that it asked for."""

    code = "disk_full"


def check_size(files: Listing, what: str, limit_mb: int) -> None:
    """Refuse files that would be too much as copies, each name for itself and holes filled.

    Raises:
        DiskFull: they would be more than `limit_mb` MiB.
    """
    size = sum(size for size, _, _ in files.values())
    if size > limit_mb << 20:
        raise DiskFull(
            f"{what} would be {size >> 20} MiB, with the holes of sparse files and with each name"
            f" of a file, and {limit_mb} MiB of disk were asked for",
            hint="ask for more with --disk, or write less there",
        )


def copy(source: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
    """Copy the first `size` bytes of a file; pieces of nothing but zeros take no room.

    Raises:
        OSError: this machine's disk is full or faulty.

    What `go_on`, called before each piece, raises ends it.
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
    """What a copy is: the whole file, one that only grew, or perhaps half of a rewrite."""

    WHOLE = "whole"
    GROWN = "grown"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Part:
    """The first `size` bytes of a file, by their digest; `stored`, or only seen."""

    size: int
    sha256: str
    stored: bool = True


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of what a file held when it had this status."""

    path: Path
    status: Status
    part: Part
    shape: Shape

    @property
    def sound(self) -> bool:
        return self.shape is not Shape.TORN


def steady_copy(
    root: Path,
    relative: str,
    into: Path,
    known: Part | None,
    go_on: Callable[[], None],
    *,
    ended: bool,
) -> Copy:
    """Copy a file, of which `known` was stored or seen before; `ended` says that its job has.

    Raises:
        OSError: it cannot be read, or this machine's disk is full or faulty.

    What `go_on` raises ends it.
    """
    with opened(root, relative) as source:
        status, clear = _after_its_tick(source)
        copy(source, into, status[0], go_on)
        unchanged = clear and status_in(source) == status
        whole = unchanged and (ended or _rests(source, status))
    if whole:
        return Copy(into, status, Part(status[0], _digest(into, status[0])), Shape.WHOLE)
    return _grown(into, status, known)


def _grown(copied: Path, status: Status, known: Part | None) -> Copy:
    """Tell whether a file that is being written has only grown since it was `known`.

    A text that was never stored counts to the end of its last line, once an earlier look has seen
    its beginning: anything else could be the first half of a file that is written for the first
    time.
    """
    size = copied.stat().st_size
    grown = known is not None and _digest(copied, known.size) == known.sha256
    if grown and known is not None and not known.stored:
        size = _lines(copied) or size
        grown = _lines(copied) > 0
    if grown:
        os.truncate(copied, size)
    part = Part(size, _digest(copied, size), stored=grown)
    return Copy(copied, status, part, Shape.GROWN if grown else Shape.TORN)


def _rests(source: BinaryIO, status: Status) -> bool:
    written = _open_for_writing(source.fileno())
    quiet_ns = 0 if written is False else OPEN_QUIET_NS if written else QUIET_NS
    return abs(time.time_ns() - status[1]) >= quiet_ns


def _open_for_writing(file: int) -> bool | None:
    """Tell whether anybody has a file open for writing; None where the system does not say."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # Who opens it in this instant waits for the line after, and this process gets a signal:
        # one that does nothing, where the usual one would end it.
        fcntl.fcntl(file, fcntl.F_SETSIG, SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _after_its_tick(source: BinaryIO) -> tuple[Status, bool]:
    """Return a file's status, and whether every write from now on will change it."""
    status = status_in(source)
    if not _outside_its_tick(status):
        time.sleep(TICK_NS / 1e9)
        status = status_in(source)
    return status, _outside_its_tick(status)


def _outside_its_tick(status: Status) -> bool:
    return abs(time.time_ns() - status[1]) >= TICK_NS


def _digest(path: Path, size: int) -> str:
    """Return the SHA-256 of the first bytes of a file; of fewer, if it has no more."""
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while piece := file.read(min(PIECE, left)):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def _lines(path: Path) -> int:
    """Return how many bytes the whole lines of a text have; none where it is no text."""
    end = place = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            if b"\0" in piece:
                return 0
            if b"\n" in piece:
                end = place + piece.rindex(b"\n") + 1
            place += len(piece)
    return end

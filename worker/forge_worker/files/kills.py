"""Whether a file is whole by its format, and which files a killed program may have been writing.

Nothing of a file is trusted: no code of it runs, and every look is bounded.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from forge_worker.files.copies import Copy
from forge_worker.files.database_moments import SQLITE, newest_lmdb
from forge_worker.files.formats import arrays, compressed, documents
from forge_worker.files.formats.folders import SAFETENSORS, ZIP, is_half
from forge_worker.files.formats.records import BrokenFile, records
from forge_worker.files.safe_files import Status, entered, opened_in, parts_of

HEAD_BYTES = 4096
SQLITE_HEAD = 100
# Formats that end as they begin, or nearly so: their first bytes and their last.
ENDS = {
    b"PAR1": b"PAR1",
    b"ARROW1": b"ARROW1",
    b"FEA1": b"FEA1",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
}
# A program that was writing to a file has done so this shortly before, at least …
LAST_MOMENTS_NS = 2_000_000_000
# … and this shortly after the signal that ended it was sent. One that writes later handled it.
REACTION_NS = 50_000_000
# A program that lives on for so long has handled a signal, and then ended by itself.
HANDLED_NS = 2_000_000_000
SIGNAL_BASE, LAST_SIGNAL, SIGKILL = 128, 64, 9
# Looks at which a file of one size was open, after which it counts as changed in place for good.
LOOKS_IN_PLACE = 2
# How long a file may be that says which step was saved last, and how many are looked at.
POINTER_BYTES, MOST_LOOKS = 1024, 1000


class Whole(Enum):
    """What a format says about a file."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def wholeness(file: BinaryIO, name: str, size: int) -> Whole:
    """Tell whether a file of `size` bytes is whole, as far as its format shows."""
    try:
        verdict = _judged(file, name, size)
    except (OSError, ValueError, OverflowError, MemoryError, RecursionError):
        return Whole.UNKNOWN
    return {True: Whole.YES, False: Whole.NO, None: Whole.UNKNOWN}[verdict]


def _judged(file: BinaryIO, name: str, size: int) -> bool | None:
    head = os.pread(file.fileno(), HEAD_BYTES, 0)
    if not head:
        return None
    if head.startswith(ZIP) or name.endswith(SAFETENSORS):
        return not is_half(file, name, size)
    for beginning, end in ENDS.items():
        if head.startswith(beginning):
            return os.pread(file.fileno(), len(end), max(0, size - len(end))) == end
    for start, judge in BY_HEAD.items():
        if head.startswith(start):
            return judge(file, size)
    if size >= arrays.HDF5_LEAST and arrays.is_hdf5(file, head):
        return arrays.hdf5(file, size)
    return _otherwise(file, name, size, head)


def _otherwise(file: BinaryIO, name: str, size: int, head: bytes) -> bool | None:
    if state := newest_lmdb(file):
        return size >= state.size
    if name.endswith((".onnx", ".pb")):
        return documents.protobuf(file, size)
    if _is_records(file, size):
        return _ends_with_a_record(file, size)
    if compressed.is_tar(head):
        return compressed.tar(file, size)
    if head.startswith(documents.START) and not documents.is_text(head):
        return documents.ubjson(file, size)
    return documents.text(file, size, head)


def _is_records(file: BinaryIO, size: int) -> bool:
    try:
        return next(records(file, 0, size), None) is not None
    except BrokenFile:
        return False


def _ends_with_a_record(file: BinaryIO, size: int) -> bool | None:
    end = 0
    for record in records(file, 0, size):
        end = record.end
    return end == size or None


def _sqlite(file: BinaryIO, size: int) -> bool | None:
    """Compare a database's size with its number of pages, if that is up to date."""
    head = os.pread(file.fileno(), SQLITE_HEAD, 0)
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    if len(head) < SQLITE_HEAD or head[24:28] != head[92:96]:
        return None
    return size >= (65536 if page == 1 else page) * pages


BY_HEAD: dict[bytes, Callable[[BinaryIO, int], bool | None]] = {
    SQLITE: _sqlite,
    arrays.NPY: arrays.npy,
    compressed.GZIP: compressed.gzip,
    compressed.BZIP2: compressed.bzip2,
    compressed.XZ: compressed.xz,
    compressed.ZSTD: compressed.zstd,
    b"x\x01": compressed.zlib,
    b"x\x5e": compressed.zlib,
    b"x\x9c": compressed.zlib,
    b"x\xda": compressed.zlib,
    documents.LIGHTGBM: documents.lightgbm,
    arrays.START: arrays.pickle,
}


@dataclass(frozen=True, slots=True)
class Kill:
    """When a program was killed; `asked` if it was told to stop, which it may have handled.

    Nobody saw it if `at_ns` is 0.
    """

    at_ns: int
    asked: bool = False

    def handled(self, mtime_ns: int) -> bool:
        """Tell whether a program that was told to stop wrote this late, as only a handler does."""
        return self.asked and mtime_ns > self.at_ns + REACTION_NS

    def met(self, mtime_ns: int) -> bool:
        """Tell whether a write at this time was among a program's last ones."""
        return mtime_ns >= self.at_ns - LAST_MOMENTS_NS and not self.handled(mtime_ns)


@dataclass(slots=True)
class ProgramEnd:
    """What is known of a program's end: whether no process can write any more, and its kill."""

    over: bool = False
    kill: Kill | None = None


def kill(
    code: int | None,
    *,
    out_of_memory: bool,
    asked_ns: int,
    ended_ns: int,
    caught: bool | None = None,
) -> Kill | None:
    """Return how a program was killed; None if it ended by itself.

    Args:
        code: its exit code; None if it is not known.
        out_of_memory: whether the kernel killed some of it.
        asked_ns: when it was told to stop, or 0.
        ended_ns: when its end was noticed, or 0 if it may have been long before.
        caught: whether it had a handler for the signal, whose last act may have been to save; None
            if that could not be seen, so that only the time can tell.
    """
    if code is None or out_of_memory or code == SIGNAL_BASE + SIGKILL:
        return Kill(ended_ns)
    if not SIGNAL_BASE < code <= SIGNAL_BASE + LAST_SIGNAL:
        return None
    if not asked_ns or caught is False:
        return Kill(ended_ns)
    if caught:
        return None
    return None if ended_ns - asked_ns > HANDLED_NS and ended_ns else Kill(asked_ns, asked=True)


class Openings:
    """Files that processes could write to at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Status, int]] = {}

    def note(self, copies: Mapping[str, Copy]) -> None:
        """Record what a look has found."""
        for path, copy in copies.items():
            (size, _, inode), looks = self._seen.pop(path, ((-1, 0, 0), 0))
            if copy.written:
                again = (size, inode) == (copy.status[0], copy.status[2])
                self._seen[path] = copy.status, looks + 1 if again else 1

    def had(self, path: str, status: Status) -> bool:
        """Tell whether a file was open, and was not written to since."""
        return path in self._seen and self._seen[path][0] == status

    def in_place(self, path: str, status: Status) -> bool:
        """Tell whether a file was open at several looks and always had this size."""
        (size, _, inode), looks = self._seen.get(path, ((-1, 0, 0), 0))
        return looks >= LOOKS_IN_PLACE and (size, inode) == (status[0], status[2])


@dataclass(frozen=True, slots=True)
class Doubt:
    """Whether a file may be half, since its program was killed; `stored` if a version of it is."""

    kill: Kill
    root: Path
    relative: str
    path: str
    openings: Openings
    stored: bool

    def __call__(self, file: BinaryIO, status: Status) -> bool:
        """Tell it of a file with this status."""
        whole = wholeness(file, self.path, status[0])
        return whole is Whole.NO or (whole is Whole.UNKNOWN and self._written_last(file, status))

    def _written_last(self, file: BinaryIO, status: Status) -> bool:
        """Tell whether the program was writing to a file when it was killed.

        It was not if it renamed the file since, or went on: to make or rename something beside it,
        or beside a folder that it is in, or to write its name or that of such a folder.
        A file that is changed in place all the time has no better version.
        """
        if not self.stored and self.openings.in_place(self.path, status):
            return False
        if self.openings.had(self.path, status):
            return True
        changed_ns = os.fstat(file.fileno()).st_ctime_ns
        # A time to come was set, and is not that of a write.
        written_ns = min(status[1], changed_ns)
        if not self.kill.met(written_ns):
            return False
        return status[0] == 0 or not (changed_ns > written_ns or self._went_on(written_ns))

    def _went_on(self, since_ns: int) -> bool:
        parts = parts_of(self.relative)
        for depth, name in enumerate(parts):
            with entered(self.root, parts[:depth]) as folder:
                if os.fstat(folder).st_mtime_ns >= since_ns or _named(folder, name, since_ns):
                    return True
        return False


def _named(folder: int, name: str, since_ns: int) -> bool:
    """Tell whether a small file, such as `latest`, was written since and names an entry."""
    word = re.compile(rb"(?<![\w.-])%b(?![\w-])" % re.escape(os.fsencode(name)))
    with os.scandir(folder) as listed:
        for each in islice(listed, MOST_LOOKS):
            # One that we may not read names nothing.
            with suppress(OSError):
                status = each.stat(follow_symlinks=False)
                small = stat.S_ISREG(status.st_mode) and status.st_size <= POINTER_BYTES
                if small and each.name != name and status.st_mtime_ns >= since_ns:
                    with opened_in(folder, each.name) as file:
                        if word.search(file.read(POINTER_BYTES)):
                            return True
    return False

"""The metrics file, read like `tail -F`, for a job may write it anew; and what a line says."""

import json
import os
import weakref
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

from forge_schema.model.fields import storable
from forge_schema.model.states import PROGRESS

from forge_worker.files.safe_files import opened

LINE_BYTES = 64 << 10
READ_BYTES = 1 << 20
# How much of the file's beginning, and of what precedes the place, tells that it is still the same.
MARK_BYTES = 256
# A job may write its whole history each time: so many of its lines are recognised.
KNOWN_LINES = 1 << 16
# For how long a last line without a line feed must not have changed.
STANDS_S = 0.5
LINE_ENDS = (b"\n", b"\r")


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None.

    NaN and infinities, which JSON does not have, become strings. In text, a replacement character
    stands for a NUL and for half a surrogate pair.
    """
    if len(line) > LINE_BYTES:
        return None
    try:
        values = json.loads(storable(line), parse_constant=str, parse_float=_finite)
        # Python also reads half a surrogate pair as UTF-8, but the database refuses it.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def step_of(values: dict[str, Any]) -> float | None:
    """Return the step in a line, or None."""
    return _number(values.get("step"))


def progress_of(values: dict[str, Any]) -> float | None:
    """Return the share done, 0 to 1, from `progress`, or from `step` and `total`."""
    step, total = step_of(values), _number(values.get("total"))
    share = _number(values.get("progress"))
    if share is None and step is not None and total:
        share = step / total
    return None if share is None else min(max(share, 0.0), 1.0)


def measured(values: dict[str, Any]) -> set[str]:
    """Return the names of the metrics in a line."""
    return {
        name
        for name, value in values.items()
        if name not in PROGRESS and _number(value) is not None
    }


def _finite(digits: str) -> float | str:
    # 1e999 parses as infinity, which Postgres's JSON lacks: it is stored as a string.
    if isfinite(value := float(digits)):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        return float(value)
    return None


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was read, in bytes and lines; `inode` and `mark` tell which file that was."""

    place: int = 0
    lines: int = 0
    inode: int = 0
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A new line, its number in the file from 1, and where it ends."""

    data: bytes
    number: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """The new lines of one look. It has none if those that it read were known."""

    lines: list[Line]
    end: Position
    _head: bytes
    _data: bytes
    _start: int

    def position(self, line: Line) -> Position:
        """Return the position after one of the lines."""
        mark = mark_of(self._head, self._data, self._start, line.end)
        return replace(self.end, place=line.end, lines=line.number, mark=mark)


class MetricsFile:
    """Reads whole lines from a position on.

    A file that is smaller than the position, that has other content before it, or that has another
    inode is read from its beginning. If it `remembers`, lines there that it read before are not
    new. What was written to a file until it was replaced comes first.

    A last line without a line feed is read if it is an object and either stands still or was
    written anew.
    """

    def __init__(self, path: Path, position: Position | None = None, *, remembers: bool) -> None:
        self._path = path
        self._name = str(path)
        self._remembers = remembers
        self.position = position or Position()
        # The lines of the file as it was read, by their hashes, and how many of them came again.
        self._known = array("q")
        self._again = 0
        self._recalled = False
        self._file: int | None = None
        self._release: Callable[[], object] = weakref.finalize(self, int)
        self._seen: tuple[int, ...] | None = None
        # What follows the last line feed, since when, and whether it is known to stand still.
        self._rest, self._rest_at = b"", 0.0
        self._stands = True
        self._inside_line = False

    def close(self) -> None:
        """Close the file; a later look opens it again."""
        self._release()
        self._file = None

    def changed(self) -> bool:
        """Tell, without opening the file, whether a look may find anything new."""
        return not self._stands or self._status() != self._seen

    def look(self, *, last: bool = False, leap: bool = False) -> Block | None:
        """Return the next lines, or None if there is nothing new.

        Args:
            last: whether nothing is written any more.
            leap: whether to pass over all but the last lines of many.
        """
        self._seen = self._status()
        named = self._open()
        if self._file is not None and named is not None and _inode(named) != _inode(self._file):
            # It was replaced.
            block = self._next(last=True, leap=leap)
            if block is not None:
                os.close(named)
                self._seen = None
                return block
            self.close()
        if self._file is None and named is not None:
            self._take(named)
        elif named is not None:
            os.close(named)
        return None if self._file is None else self._next(last=last, leap=leap)

    def skip(self) -> None:
        """Go to the end of what is there now, after its last line feed."""
        named = self._open()
        if named is None:
            return
        self._take(named)
        size = os.fstat(named).st_size
        start = max(0, size - LINE_BYTES)
        data, head = os.pread(named, LINE_BYTES, start), os.pread(named, MARK_BYTES, 0)
        place = start + data.rfind(b"\n") + 1
        if place - start >= min(place, MARK_BYTES):
            self.position = replace(
                self.position, place=place, mark=mark_of(head, data, start, place)
            )

    def left(self) -> int:
        """Return how many lines follow the position."""
        count, place, end = 0, self.position.place, b"\n"
        while self._file is not None and (data := os.pread(self._file, READ_BYTES, place)):
            count, place, end = count + data.count(b"\n"), place + len(data), data[-1:]
        return count + (end != b"\n")

    def _status(self) -> tuple[int, ...] | None:
        with suppress(OSError):
            status = os.lstat(self._name)
            return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns
        # It may still be written to after it was removed or renamed.
        return None if self._file is None else (os.fstat(self._file).st_size,)

    def _open(self) -> int | None:
        with suppress(OSError), opened(self._path.parent, self._path.name) as file:
            return os.dup(file.fileno())
        return None

    def _take(self, file: int) -> None:
        """Read another file from now on, or go on with that of an earlier agent."""
        self._release()
        self._file, self._release = file, weakref.finalize(self, os.close, file)
        if _inode(file) != self.position.inode:
            self._begin_anew(file)

    def _begin_anew(self, file: int) -> None:
        self.position = Position(inode=_inode(file))
        self._again, self._rest, self._stands, self._inside_line = 0, b"", True, False

    def _next(self, *, last: bool, leap: bool) -> Block | None:
        assert self._file is not None  # noqa: S101 - the callers have opened it
        head, data, start = self._read(self._file)
        if not self._goes_on(head, data, start):
            self._begin_anew(self._file)
            head, data, start = self._read(self._file)
        elif self._remembers and self.position.place and not self._recalled:
            self._recall(self._file)
        self._recalled = True
        far = os.fstat(self._file).st_size - READ_BYTES
        if leap and far > self.position.place:
            self.position = replace(self.position, place=far)
            head, data, start = self._read(self._file)
        new = self._whole(data[self.position.place - start :], last=last)
        if not new:
            return None
        lines, number = self._lines(new)
        end = self.position.place + len(new)
        mark = mark_of(head, data, start, end)
        self.position = replace(self.position, place=end, lines=number, mark=mark)
        return Block(lines, self.position, head, data, start)

    def _read(self, file: int) -> tuple[bytes, bytes, int]:
        """Return the file's beginning, what lies around the place, and where that starts."""
        place = self.position.place
        start = max(0, place - MARK_BYTES)
        head = os.pread(file, MARK_BYTES, 0)
        return head, os.pread(file, place - start + READ_BYTES, start), start

    def _goes_on(self, head: bytes, data: bytes, start: int) -> bool:
        """Tell whether the file is as it was up to the place."""
        place = self.position.place
        there = start + len(data) >= place
        return not place or (there and mark_of(head, data, start, place) == self.position.mark)

    def _recall(self, file: int) -> None:
        """Note the lines that an earlier agent has read."""
        for line in os.pread(file, min(self.position.place, 8 * READ_BYTES), 0).splitlines():
            if line.strip():
                self._is_known(line)

    def _whole(self, new: bytes, *, last: bool) -> bytes:
        """Return the whole lines at the beginning of what is new."""
        end, full = new.rfind(b"\n") + 1, len(new) >= READ_BYTES
        rest, former = new[end:], self._rest
        self._rest, self._stands = b"", True
        # A line that is as long as this is none that can be used.
        if (last and not full) or (full and not end):
            return new
        if not rest or self._inside_line:
            return new[:end]
        if rest != former:
            self._rest_at = monotonic()
        stands, anew = monotonic() - self._rest_at >= STANDS_S, not rest.startswith(former)
        if (stands or anew) and parse(rest) is not None:
            return new
        self._rest, self._stands = rest, stands
        return new[:end]

    def _lines(self, new: bytes) -> tuple[list[Line], int]:
        """Return the lines that are neither blank nor known, and the number of the last of all."""
        lines, number, place = [], self.position.lines, self.position.place
        for data in new.splitlines(keepends=True):
            place += len(data)
            goes_on, self._inside_line = self._inside_line, not data.endswith(LINE_ENDS)
            number += not goes_on
            if not goes_on and data.strip() and not self._is_known(data):
                lines.append(Line(data, number, place))
        return lines, number

    def _is_known(self, line: bytes) -> bool:
        """Tell whether a line stood there before; from the first other one on, all are new."""
        if not self._remembers or self._again >= KNOWN_LINES:
            return False
        mark = hash(line.strip())
        known = self._again < len(self._known) and self._known[self._again] == mark
        if not known:
            del self._known[self._again :]
            self._known.append(mark)
        self._again += 1
        return known


def mark_of(head: bytes, data: bytes, start: int, place: int) -> int:
    """Return a mark of a file as far as a place.

    Args:
        head: the file's beginning.
        data: what lies around the place, from `start` on.
        start: where the data begin.
        place: how far the file was read.
    """
    before = data[max(0, place - MARK_BYTES - start) : place - start]
    digest = blake2b(head[:place] + before, digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _inode(file: int) -> int:
    return os.fstat(file).st_ino

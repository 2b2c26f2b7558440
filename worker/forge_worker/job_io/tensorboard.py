"""TensorBoard's event files: their scalars as lines of metrics, read from where it left off."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from os import stat_result
from pathlib import Path
from stat import S_ISREG
from struct import error as WrongSize  # noqa: N812 - it names no struct otherwise
from struct import unpack

from forge_schema.model.states import PROGRESS

from forge_worker.attempt import LiveAttempt
from forge_worker.files.formats.records import BrokenFile, records
from forge_worker.files.safe_files import Parts, opened, walk

# TensorBoard itself takes these files for events; the number is when the writer began.
NAME = re.compile(r"events\.out\.tfevents\.(\d{10,12})\..+")
# Their places must fit in the page of cursors.
MOST_FILES = 16
LOOKED_AT = 20_000
BATCH = 500
RECORDS = 20_000

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Numbers of the fields that are read.
EVENT_STEP, EVENT_SUMMARY, SUMMARY_VALUE = 2, 5, 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_TYPE, TENSOR_SHAPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 2, 4, 5, 6
FLOAT, DOUBLE = 1, 2
TAG_BYTES = 500

Field = tuple[int, int | bytes]
Scalar = tuple[str, float]


class EventFiles:
    """Event files that were begun during this attempt; those of a bundle or a checkpoint are older.

    Each has a number, which it keeps as long as the attempt lasts.
    """

    def __init__(self, attempt: LiveAttempt) -> None:
        self._folders = attempt.folders
        top, *below = attempt.saved.folder
        # In a large project, a walk of all of it may not get as far as the checkpoint folder.
        self._roots: tuple[tuple[Path, Parts], ...] = (
            (attempt.folders.work, ()),
            (attempt.folders.output, ()),
            (attempt.folders.root / top, tuple(below)),
        )
        self._cursors = attempt.cursors
        self._files: dict[int, tuple[Path, Parts]] = {}

    def look(self) -> list[int]:
        """Look for new files, and return the numbers of all."""
        for root, parts, status in sorted(self._new(), key=lambda entry: entry[1][-1]):
            number = self._number(status.st_ino)
            if number is not None:
                self._files[number] = (root, parts)
        return sorted(self._files)

    def read(self, number: int, place: int, most: int = BATCH) -> tuple[list[bytes], int]:
        """Return a file's next lines from a place on, and where they end."""
        root, parts = self._files[number]
        lines: list[bytes] = []
        with suppress(OSError, BrokenFile), opened(root, "/".join(parts)) as file:
            size = file.seek(0, 2)
            for record in islice(records(file, place, size), RECORDS):
                step, values = scalars(record.data or b"")
                if values and record.intact():
                    lines.append(self._line(number, step, values))
                place = record.end
                if len(lines) >= most:
                    break
        return lines, place

    def left(self, number: int, place: int) -> int:
        """Return how many events with scalars follow a place."""
        root, parts = self._files[number]
        count = 0
        with suppress(OSError, BrokenFile), opened(root, "/".join(parts)) as file:
            for record in records(file, place, file.seek(0, 2)):
                count += bool(scalars(record.data or b"")[1])
        return count

    def _number(self, inode: int) -> int | None:
        for number in range(MOST_FILES):
            name = f"events{number}_inode"
            if not self._cursors[name]:
                self._cursors.keep(**{name: inode})
            if self._cursors[name] == inode:
                return number
        return None

    def _line(self, number: int, step: int, scalars_there: list[Scalar]) -> bytes:
        values = {self._key(number, tag): value for tag, value in scalars_there}
        return json.dumps({**values, "step": step}).encode()

    def _key(self, number: int, tag: str) -> str:
        """Return a tag, after the name of its folder if that is not the first file's."""
        folder = self._files[number][1][:-1]
        first = self._files.get(0)
        alone = first is not None and first[1][:-1] == folder and tag not in PROGRESS
        return tag if alone else f"{folder[-1] if folder else 'tensorboard'}/{tag}"

    def _new(self) -> Iterator[tuple[Path, Parts, stat_result]]:
        began_s = int((self._folders.root / "lease.json").stat().st_mtime)
        for root, start in self._roots:
            for parts, status in islice(walk(root, start), LOOKED_AT):
                name = NAME.fullmatch(parts[-1])
                if name and int(name[1]) >= began_s and S_ISREG(status.st_mode):
                    yield root, parts, status


def scalars(event: bytes) -> tuple[int, list[Scalar]]:
    """Return the step of an event and its scalars; what is no event has none."""
    try:
        fields = list(_fields(event))
        step = next((n for name, n in fields if name == EVENT_STEP and isinstance(n, int)), 0)
        # A negative step is written as the number that is 2**64 larger.
        step -= 1 << 64 if step >= 1 << 63 else 0
        values = [
            value
            for summary in _inner(fields, EVENT_SUMMARY)
            for value in _inner(list(_fields(summary)), SUMMARY_VALUE)
        ]
        return step, [scalar for value in values if (scalar := _scalar(value)) is not None]
    except (ValueError, IndexError, WrongSize):
        return 0, []


def _scalar(value: bytes) -> Scalar | None:
    fields = list(_fields(value))
    tag = next(_inner(fields, VALUE_TAG), b"")
    if not tag or len(tag) > TAG_BYTES:
        return None
    simple = next(_inner(fields, VALUE_SIMPLE), None)
    tensor = next(_inner(fields, VALUE_TENSOR), None)
    if simple is not None:
        return tag.decode(), float(unpack("<f", simple)[0])
    number = None if tensor is None else _number(list(_fields(tensor)))
    return None if number is None else (tag.decode(), number)


def _number(tensor: list[Field]) -> float | None:
    """Return the number in a tensor without dimensions, as TensorFlow 2 writes scalars."""
    kind = next((n for name, n in tensor if name == TENSOR_TYPE), 0)
    if kind not in (FLOAT, DOUBLE) or any(_inner(tensor, TENSOR_SHAPE)):
        return None
    listed = TENSOR_FLOATS if kind == FLOAT else TENSOR_DOUBLES
    packed = next(_inner(tensor, TENSOR_CONTENT), next(_inner(tensor, listed), b""))
    return float(unpack("<f" if kind == FLOAT else "<d", packed)[0]) if packed else None


def _inner(fields: list[Field], number: int) -> Iterator[bytes]:
    return (value for name, value in fields if name == number and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message, by number."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if key & 7 == BYTES:
            length, place = _varint(data, place)
        else:
            length = {FIXED64: 8, FIXED32: 4}.get(key & 7, -1)
        if not 0 <= length <= len(data) - place:
            raise ValueError("the field is longer than its message")
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
    raise ValueError("the number has no end")

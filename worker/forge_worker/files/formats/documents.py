"""Texts, messages of Protocol Buffers, and UBJSON, in which XGBoost saves its models."""

import json
import os
import struct
from typing import BinaryIO

LIGHTGBM, LIGHTGBM_END = b"tree\nversion=", b"end of parameters"
TAIL = 1 << 20
JSON_BYTES = 8 << 20
# A text of less is written at once: no buffer is smaller.
AT_ONCE = 4096
MORE = 0x80
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 100_000

START = b"{"
SIZES = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8, b"d": 4, b"D": 8, b"C": 1}
EMPTY = frozenset((b"Z", b"N", b"T", b"F"))
WHOLE_NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
TEXTS = (b"S", b"H")
MOST_VALUES = 2_000_000


def is_text(data: bytes) -> bool:
    """Tell whether bytes are text; the last character may be cut off."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > 0
    return True


def text(file: BinaryIO, size: int, head: bytes) -> bool | None:
    """Tell whether a text is JSON, ends with a whole line, or was written at once."""
    if not is_text(head):
        return None
    if head.lstrip()[:1] in (b"{", b"["):
        return _json(file, size)
    return (size < AT_ONCE or os.pread(file.fileno(), 1, size - 1) == b"\n") or None


def _json(file: BinaryIO, size: int) -> bool | None:
    if size > JSON_BYTES:
        return None
    data = os.pread(file.fileno(), size, 0)
    try:
        json.loads(data)
    except json.JSONDecodeError:
        return _json_lines(data) or None
    return True


def _json_lines(data: bytes) -> bool:
    lines = data.splitlines()
    if not data.endswith(b"\n"):
        return False
    try:
        for line in (lines[0], lines[-1]):
            json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def lightgbm(file: BinaryIO, size: int) -> bool | None:
    """Tell whether the end of a model is there."""
    return LIGHTGBM_END in os.pread(file.fileno(), TAIL, max(0, size - TAIL))


def protobuf(file: BinaryIO, size: int) -> bool | None:
    """Tell whether a message's outermost fields end with the file."""
    place = 0
    for _ in range(MOST_FIELDS):
        if place >= size:
            return True if place == size else None
        head = os.pread(file.fileno(), 20, place)
        tag, width = _varint(head)
        place += width
        if tag & 7 in (VARINT, DELIMITED):
            value, width = _varint(head[width:])
            place += width + (value if tag & 7 == DELIMITED else 0)
        elif tag & 7 in (FIXED64, FIXED32):
            place += 8 if tag & 7 == FIXED64 else 4
        else:
            return None
    return None


def _varint(data: bytes) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < MORE:
            return value, place + 1
    raise ValueError("no varint")


class NotThis(ValueError):
    """It is cut off, or is of another format."""


def ubjson(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its outermost object ends with the file."""
    try:
        return _Walk(file, size).end() == size or None
    except NotThis:
        return None


class _Walk:
    """Steps over values; what is open is a stack, so that no depth is too deep."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._place = 0
        # Of each open container: whether it is an object, and how many values are left, if it says.
        self._open: list[tuple[bool, int]] = []

    def end(self) -> int:
        """Return where the first value ends."""
        self._value(self._read(1))
        for _ in range(MOST_VALUES):
            if not self._open:
                return self._place
            self._step()
        raise NotThis

    def _step(self) -> None:
        named, left = self._open.pop()
        if left == 0:
            return
        mark = self._read(1)
        if left < 0 and mark == (b"}" if named else b"]"):
            return
        self._open.append((named, left - 1 if left > 0 else left))
        if named:
            self._place -= 1
            self._skip(self._length())
            mark = self._read(1)
        self._value(mark)

    def _value(self, mark: bytes) -> None:
        if mark in SIZES:
            self._skip(SIZES[mark])
        elif mark in TEXTS:
            self._skip(self._length())
        elif mark in (b"{", b"["):
            self._container(named=mark == b"{")
        elif mark not in EMPTY:
            raise NotThis

    def _container(self, *, named: bool) -> None:
        mark, kind, count = self._read(1), b"", -1
        if mark == b"$":
            kind, mark = self._read(1), self._read(1)
        if mark == b"#":
            count = self._length()
        else:
            self._place -= 1
        if kind in SIZES and not named and count >= 0:
            self._skip(count * SIZES[kind])
        elif kind:
            raise NotThis
        else:
            self._open.append((named, count))

    def _length(self) -> int:
        mark = self._read(1)
        if mark not in WHOLE_NUMBERS:
            raise NotThis
        length = int(struct.unpack(WHOLE_NUMBERS[mark], self._read(SIZES[mark]))[0])
        if length < 0:
            raise NotThis
        return length

    def _skip(self, count: int) -> None:
        self._place += count
        if self._place > self._size:
            raise NotThis

    def _read(self, count: int) -> bytes:
        data = os.pread(self._file.fileno(), count, self._place)
        self._skip(count)
        return data

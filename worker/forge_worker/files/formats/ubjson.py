"""UBJSON, in which XGBoost saves its models."""

import os
import struct
from typing import BinaryIO

START = b"{"
SIZES = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8, b"d": 4, b"D": 8, b"C": 1}
EMPTY = frozenset((b"Z", b"N", b"T", b"F"))
WHOLE_NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
TEXTS = (b"S", b"H")
MOST_VALUES = 2_000_000


class NotThis(ValueError):
    """It is cut off, or is of another format."""


def ends(file: BinaryIO, size: int) -> bool | None:
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

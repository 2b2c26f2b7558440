"""The records of a TFRecord file, of which the end may not be written yet.

A record is its length, a checksum of that, its data and a checksum of them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import BinaryIO

LENGTH, SUM = Struct("<Q"), Struct("<I")
HEAD = LENGTH.size + SUM.size
# A scalar takes far less; images and histograms are skipped unread.
RECORD_BYTES = 16 << 10


class BrokenFile(ValueError):
    """A length is wrong, so the records after it cannot be found."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The data of a record, None if it is too long to be read; it ends at `end` of the file."""

    data: bytes | None
    checksum: int
    end: int

    def intact(self) -> bool:
        """Return whether the data are those that were written."""
        return self.data is not None and masked(self.data) == self.checksum


def records(file: BinaryIO, place: int, size: int) -> Iterator[FileRecord]:
    """Yield the records from a place on, of a file of this size, up to the first unfinished one.

    Raises:
        BrokenFile: nothing more can be read from this file.
    """
    while (end := place + HEAD) <= size:
        file.seek(place)
        head = file.read(HEAD)
        if len(head) < HEAD:
            return
        if masked(head[: LENGTH.size]) != SUM.unpack(head[LENGTH.size :])[0]:
            raise BrokenFile
        length = int(LENGTH.unpack(head[: LENGTH.size])[0])
        end += length + SUM.size
        if end > size:
            return
        if length > RECORD_BYTES:
            yield FileRecord(None, 0, end)
        else:
            rest = file.read(length + SUM.size)
            if len(rest) < length + SUM.size:
                return
            yield FileRecord(rest[:length], SUM.unpack(rest[length:])[0], end)
        place = end


def whole_records(path: Path) -> int:
    """Return the length in bytes of a file's whole records; 0 for any other file."""
    end = 0
    with path.open("rb") as file, suppress(BrokenFile):
        for record in records(file, 0, path.stat().st_size):
            end = record.end
    return end


def masked(data: bytes) -> int:
    """Return TFRecord's checksum: CRC-32C, rotated, plus a constant."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_entry(number) for number in range(256)]

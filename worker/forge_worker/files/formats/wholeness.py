"""Tell by its format whether a file is whole, although its program was killed.

Nothing of it is trusted: no code of a file runs, and every look is bounded.
"""

import os
from collections.abc import Callable
from enum import Enum
from typing import BinaryIO

from forge_worker.files import lmdb
from forge_worker.files.formats import arrays, compressed, documents
from forge_worker.files.formats.folders import SAFETENSORS, ZIP, is_half
from forge_worker.files.formats.records import BrokenFile, records

HEAD_BYTES = 4096
SQLITE, SQLITE_HEAD = b"SQLite format 3\0", 100
# Formats that end as they begin, or nearly so: their first bytes and their last.
ENDS = {
    b"PAR1": b"PAR1",
    b"ARROW1": b"ARROW1",
    b"FEA1": b"FEA1",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
}


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
    if state := lmdb.newest(file):
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

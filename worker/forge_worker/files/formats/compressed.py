"""Compressed files and tar archives: whether their end is there."""

import bz2
import os
import zlib as deflate
from collections.abc import Iterator
from typing import BinaryIO

GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
XZ_END = b"YZ"
PIECE, OUT = 1 << 20, 4 << 20
# Beyond so much, compressed or not, nothing is said about a file that must be unpacked.
MOST_IN, MOST_OUT = 64 << 20, 512 << 20
SKIPPABLE, CHECKSUM = range(0x184D2A50, 0x184D2A60), 4
FRAME_LEAST, SKIPPABLE_HEAD, REPEATED = 6, 8, 1
BLOCK, TAR_MAGIC, TAR_SIZE = 512, slice(257, 262), slice(124, 136)
MOST_ENTRIES = 1_000_000


def gzip(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its checksum is there, and is right."""
    return _deflated(file, size, deflate.MAX_WBITS | 16)


def zlib(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its checksum is there, and is right; other files begin in the same way."""
    return _deflated(file, size, deflate.MAX_WBITS) or None


def _deflated(file: BinaryIO, size: int, bits: int) -> bool | None:
    if size > MOST_IN:
        return None
    unpacked, out, ended = deflate.decompressobj(bits), 0, False
    try:
        for piece in _pieces(file, size):
            data = piece
            while data:
                out += len(unpacked.decompress(data, OUT))
                if out > MOST_OUT:
                    return None
                ended, data = unpacked.eof, unpacked.unused_data or unpacked.unconsumed_tail
                if ended:
                    # Another member may follow.
                    unpacked = deflate.decompressobj(bits)
    except deflate.error:
        return False
    return ended


def bzip2(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its last stream ends."""
    if size > MOST_IN:
        return None
    unpacked, out = bz2.BZ2Decompressor(), 0
    for piece in _pieces(file, size):
        data = piece
        while data or not (unpacked.eof or unpacked.needs_input):
            if unpacked.eof:
                unpacked = bz2.BZ2Decompressor()
            out += len(unpacked.decompress(data, OUT))
            if out > MOST_OUT:
                return None
            data = unpacked.unused_data if unpacked.eof else b""
    return unpacked.eof


def xz(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its footer is there."""
    return os.pread(file.fileno(), len(XZ_END), max(0, size - len(XZ_END))) == XZ_END


def zstd(file: BinaryIO, size: int) -> bool | None:
    """Tell whether its frames end with the file, by the sizes of their blocks."""
    place = 0
    while place < size:
        end = _frame_end(file, place, size)
        if end is None or end > size:
            return False
        place = end
    return True


def _frame_end(file: BinaryIO, place: int, size: int) -> int | None:
    head = os.pread(file.fileno(), 18, place)
    if int.from_bytes(head[:4], "little") in SKIPPABLE and len(head) >= SKIPPABLE_HEAD:
        return place + 8 + int.from_bytes(head[4:8], "little")
    if not head.startswith(ZSTD) or len(head) < FRAME_LEAST:
        return None
    flags = head[4]
    single = flags >> 5 & 1
    content = (single, 2, 4, 8)[flags >> 6]
    place += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content
    last = False
    while not last:
        block = int.from_bytes(os.pread(file.fileno(), 3, place), "little")
        if place + 3 > size:
            return None
        last, kind = bool(block & 1), block >> 1 & 3
        place += 3 + (1 if kind == REPEATED else block >> 3)
    return place + (CHECKSUM if flags >> 2 & 1 else 0)


def is_tar(head: bytes) -> bool:
    """Tell whether a file is a tar archive."""
    return len(head) >= BLOCK and head[TAR_MAGIC] == b"ustar"


def tar(file: BinaryIO, size: int) -> bool | None:
    """Tell whether the end of an archive is there, and its last entry whole."""
    place = 0
    for _ in range(MOST_ENTRIES):
        head = os.pread(file.fileno(), BLOCK, place)
        if len(head) < BLOCK or place > size:
            return False
        if not any(head):
            return True
        place += BLOCK + -(-_tar_size(head[TAR_SIZE]) // BLOCK) * BLOCK
    return None


def _tar_size(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b" \0") or b"0", 8)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    for place in range(0, size, PIECE):
        yield os.pread(file.fileno(), min(PIECE, size - place), place)

"""Files of arrays, HDF5's and NumPy's, and pickles, also joblib's. None is ever loaded."""

import io
import os
import pickletools
import re
from itertools import takewhile
from math import prod
from typing import BinaryIO

HDF5, HDF5_LEAST = b"\x89HDF\r\n\x1a\n", 48
# A block of the user's may come first, of a power of two from here on.
FIRST_BLOCK, LAST_BLOCK = 512, 1 << 20
# Bytes of the superblock, and in it the places of the size of an address, of the base address, and
# of the end of the file, by its version. Up to 1 the address of a driver follows.
OLD, NEW = {0: (13, 24, 40), 1: (13, 28, 44)}, {2: (9, 12, 28), 3: (9, 12, 28)}
IN_USE = 11, 1
WIDTH, NOWHERE = 8, b"\xff" * 8
NPY, NPY_LEAST, NPY_HEAD = b"\x93NUMPY", 12, 1 << 16
FIELDS = re.compile(r"'descr': \[((?:\('\w+', '[<>|=]?[a-zA-Z]\d+'\)(?:, )?)+)\]")
FIELD = re.compile(r"'[<>|=]?([a-zA-Z])(\d+)'\)")
DESCR = re.compile(r"'descr': '[<>|=]?([a-zA-Z])(\d+)(?:\[\w+\])?'")
SHAPE = re.compile(r"'shape': \(([\d, ]*)\)")
# NumPy counts the characters of a text, each of four bytes; an object is a pickle.
TEXT, OBJECT = "U", "O"

START, STOP = b"\x80", b"."
OLDEST, FRAMED, NEWEST = 2, 4, 5
# Up to this size every instruction is looked at …
LOOKED_AT = 1 << 20
# … and a frame, or a large object between two frames, is stepped over by its length.
FRAME, FRAME_BYTES = 0x95, 9
OBJECTS = {0x8D: 8, 0x8E: 8, 0x96: 8, 0x42: 4, 0x54: 4, 0x58: 4}
ALONE = b"\x94\x30"
JOBLIB = b"joblib.numpy_pickle"
# What comes before the end of an object: it is built, called, put into a list, a tuple or a dict.
LAST = frozenset(b"bRutseal\x85\x86\x87\x81\x92\x94}])N\x88\x89")


def is_hdf5(file: BinaryIO, head: bytes) -> bool:
    """Tell whether a file is of this format."""
    return _superblock(file, head) is not None


def hdf5(file: BinaryIO, size: int) -> bool | None:
    """Tell whether a file ends where its superblock says.

    A file that is closed does. One that is open may be longer; if it is shorter, a part is missing.
    """
    place = _superblock(file, os.pread(file.fileno(), len(HDF5), 0)) or 0
    block = os.pread(file.fileno(), 96, place)
    version = block[8]
    width, base, end = (OLD | NEW).get(version, (0, 0, 0))
    if not width or block[width] != WIDTH or (version in NEW and block[IN_USE[0]] & IN_USE[1]):
        return None
    if version in OLD and block[end + 8 : end + 16] != NOWHERE:
        return None
    stated = int.from_bytes(block[end : end + 8], "little")
    begin = int.from_bytes(block[base : base + 8], "little")
    if size in (stated, begin + stated):
        return True
    return False if size < stated else None


def _superblock(file: BinaryIO, head: bytes) -> int | None:
    if head.startswith(HDF5):
        return 0
    blocks = takewhile(lambda block: block <= LAST_BLOCK, (FIRST_BLOCK << n for n in range(12)))
    if len(head) < FIRST_BLOCK:
        return None
    starts = (place for place in blocks if os.pread(file.fileno(), len(HDF5), place) == HDF5)
    return next(starts, None)


def npy(file: BinaryIO, size: int) -> bool | None:
    """Tell whether a file has all bytes of its arrays."""
    place = 0
    while place < size:
        length = _npy_bytes(os.pread(file.fileno(), NPY_HEAD, place))
        if length is None:
            return None
        place += length
    return place == size


def _npy_bytes(head: bytes) -> int | None:
    """Return how many bytes an array takes, with its header; None if that is not known."""
    if not head.startswith(NPY) or len(head) < NPY_LEAST:
        return None
    width = 2 if head[6] == 1 else 4
    begin = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    text = head[8 + width : begin].decode("latin-1")
    fields, shape = FIELDS.search(text), SHAPE.search(text)
    items = FIELD.findall(fields[1]) if fields else DESCR.findall(text)
    if begin > len(head) or not items or shape is None or OBJECT in (kind for kind, _ in items):
        return None
    item = sum(int(width) * (4 if kind == TEXT else 1) for kind, width in items)
    return begin + item * prod(int(length) for length in shape[1].split(",") if length.strip())


def pickle(file: BinaryIO, size: int) -> bool | None:
    """Tell whether a pickle, or several in a row, end with the file."""
    head = os.pread(file.fileno(), 2, 0)
    if size <= len(head) or not OLDEST <= head[1] <= NEWEST:
        return None
    if size <= LOOKED_AT:
        if _ends(os.pread(file.fileno(), size, 0)):
            return True
    elif head[1] >= FRAMED and _frames_end(file, size):
        return True
    # An array in between is not an instruction; it may also be the last thing before the end.
    tail = os.pread(file.fileno(), 2, max(0, size - 2))
    ends = tail[1:] == STOP and (tail[0] in LAST or JOBLIB in os.pread(file.fileno(), 256, 0))
    return ends or None


def _ends(data: bytes) -> bool:
    stream = io.BytesIO(data)
    try:
        while stream.tell() < len(data):
            for _ in pickletools.genops(stream):
                pass
    except Exception:  # noqa: BLE001  whatever is not a pickle
        return False
    return True


def _frames_end(file: BinaryIO, size: int) -> bool:
    place = 2
    while place < size:
        head = os.pread(file.fileno(), FRAME_BYTES, place)
        if head[0] == FRAME and len(head) == FRAME_BYTES:
            place += FRAME_BYTES + int.from_bytes(head[1:9], "little")
        elif width := OBJECTS.get(head[0], 0):
            place += 1 + width + int.from_bytes(head[1 : 1 + width], "little")
        elif head[0] in ALONE:
            place += 1
        else:
            return False
    return place == size and os.pread(file.fileno(), 1, size - 1) == STOP

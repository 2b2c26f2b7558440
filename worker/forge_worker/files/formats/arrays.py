"""Files of arrays: HDF5 and NumPy's."""

import os
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
    return begin + item * prod(int(one) for one in shape[1].split(",") if one.strip())

"""Pickles, also those with arrays in them as joblib writes. None is ever loaded."""

import io
import os
import pickletools
from typing import BinaryIO

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


def whole(file: BinaryIO, size: int) -> bool | None:
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

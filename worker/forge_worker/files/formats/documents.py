"""Texts, and messages of Protocol Buffers."""

import json
import os
from typing import BinaryIO

LIGHTGBM, LIGHTGBM_END = b"tree\nversion=", b"end of parameters"
TAIL = 1 << 20
JSON_BYTES = 8 << 20
# A text of less is written at once: no buffer is smaller.
AT_ONCE = 4096
MORE = 0x80
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 100_000


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

"""Copy an LMDB database while its program uses it.

Two pages at its beginning describe the two newest states. A change is written to pages that neither
of them uses, and pages that a change has freed are used again by the third one after it at the
earliest. So the newest state stays whole until two more were committed, and a third one begins.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forge_worker.files.safe_files import copy

MAGIC, VERSION, LENGTH = 0xBEEFC0DE, 1, 152
# After the head of a page: magic, version, address, size of the map, size of a page …
META = struct.Struct("<16xIIQQI92xQQ")
PAGE_SIZES = range(256, 65536 + 1)
LOOKS = 3


@dataclass(frozen=True, slots=True)
class LmdbState:
    """The newest state: its number, its last page, and the two pages at the beginning."""

    number: int
    pages: int
    page_bytes: int
    beginning: bytes

    @property
    def size(self) -> int:
        return self.pages * self.page_bytes


def newest(file: BinaryIO) -> LmdbState | None:
    """Return the newest state of a database; None if the file is none."""
    for _ in range(LOOKS):
        if (state := _state(file)) is None or state == _state(file):
            return state
    return None


def copied(file: BinaryIO, into: Path, go_on: Callable[[], None]) -> int | None:
    """Copy the newest state and return its size; None if it was written over meanwhile."""
    state = newest(file)
    if state is None:
        return None
    copy(file, into, state.size, go_on)
    now = newest(file)
    if now is None or now.number > state.number + 1:
        return None
    with into.open("r+b") as target:
        target.write(state.beginning)
        target.truncate(state.size)
    return state.size


def _state(file: BinaryIO) -> LmdbState | None:
    head = os.pread(file.fileno(), LENGTH, 0)
    if len(head) < LENGTH:
        return None
    size = META.unpack(head)[4]
    if size not in PAGE_SIZES:
        return None
    beginning = os.pread(file.fileno(), 2 * size, 0)
    metas = [META.unpack_from(beginning.ljust(2 * size, b"\0"), place) for place in (0, size)]
    if any((magic, version) != (MAGIC, VERSION) for magic, version, *_ in metas):
        return None
    last, number = max((meta[5:] for meta in metas), key=lambda meta: meta[1])
    return LmdbState(number, last + 1, size, beginning)

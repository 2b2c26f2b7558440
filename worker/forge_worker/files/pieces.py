"""Copy the bytes of a file, piece by piece."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 16


def copy(source: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
    """Copy the first `size` bytes of a file, keeping it sparse.

    `go_on` is called before each piece; what it raises ends the copy.

    Raises:
        OSError: this machine's disk is full or faulty.
    """
    with into.open("wb") as target:
        left = size
        while piece := source.read(min(PIECE, left)):
            go_on()
            left -= len(piece)
            if piece == bytes(len(piece)):
                target.seek(len(piece), os.SEEK_CUR)
            else:
                target.write(piece)
        target.truncate()

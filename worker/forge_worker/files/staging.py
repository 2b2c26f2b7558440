"""Copies that the agent makes of a job's files, which no link of the job can lead elsewhere.

They are the agent's own and no watch weighs them, so they are bounded here: a file may be said to
be far larger than what it has on the disk, and one may have many names.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from forge_schema.model.errors import ForgeError

from forge_worker.files.safe_files import Listing

PIECE = 1 << 16


class DiskFull(ForgeError):
    """What a job wants stored is larger than the disk that it asked for."""

    code = "disk_full"


def check_size(files: Listing, what: str, limit_mb: int) -> None:
    """Refuse files that would be too much as copies, each name for itself and holes filled.

    Raises:
        DiskFull: they would be more than `limit_mb` MiB.
    """
    size = sum(size for size, _, _ in files.values())
    if size > limit_mb << 20:
        raise DiskFull(
            f"{what} would be {size >> 20} MiB, with the holes of sparse files and with each name"
            f" of a file, and {limit_mb} MiB of disk were asked for",
            hint="ask for more with --disk, or write less there",
        )


def copy(source: BinaryIO, into: Path, size: int, go_on: Callable[[], None]) -> None:
    """Copy the first `size` bytes of a file; pieces of nothing but zeros take no room.

    Raises:
        OSError: this machine's disk is full or faulty.

    What `go_on`, called before each piece, raises ends it.
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

"""Write files atomically."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def landing(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside `path`; if the block succeeds, flush it and move it there."""
    with unplaced(path.parent) as (file, temporary):
        yield file
        flush(file)
        temporary.replace(path)
        flush_folder(path.parent)


@contextmanager
def unplaced(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a new file in `folder` with a unique name; remove it afterwards unless moved."""
    temporary = folder / f".{secrets.token_hex(12)}.partial"
    try:
        with temporary.open("xb") as file:
            yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)


def flush(file: BinaryIO) -> None:
    """Flush a file's content to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

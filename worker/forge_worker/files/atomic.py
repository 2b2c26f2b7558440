"""Replace small files atomically: a reader sees the old content or the new, never a part."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, durable: bool, mode: int = 0o666) -> None:
    """Write a whole file or leave the old one; if `durable`, the write survives a power cut.

    Raises:
        OSError: the disk is full or faulty.
    """
    fresh = path.with_name(f"{path.name}.new")
    # A file left by a killed writer would keep its old mode.
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(place)
    finally:
        os.close(place)

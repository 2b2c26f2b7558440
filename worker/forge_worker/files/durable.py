"""Small files that outlive the machine's own end: they are forced to the disk, and their names."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def replace(path: Path, kept: Mapping[str, Any]) -> None:
    """Write a small JSON file whole, or leave what was there.

    Raises:
        OSError: the disk is full or faulty.
    """
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(json.dumps(kept))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(place)
    finally:
        os.close(place)

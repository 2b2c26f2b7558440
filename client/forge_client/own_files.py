"""Files that only this user may read, written whole or not at all."""

import os
from pathlib import Path

PRIVATE = 0o600


def replace(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Put a file in the place of another; whoever reads has the old text or the new one.

    Raises:
        OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    if mode != PRIVATE:
        beside.chmod(mode)
    beside.replace(path)

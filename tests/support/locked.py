"""A lock among test processes, on a file that they share."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(file: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock until the block ends; it is also released when the process ends."""
    with file.open("w") as held:
        fcntl.flock(held, how)
        yield

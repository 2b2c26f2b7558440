"""The parts of jobs that this machine has: the queue prefers it for jobs that need them.

A part is an image, an environment or a bundle. The queue's hash of it is the name of a link to the
entry of a cache, which dangles once the entry is evicted.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from forge_schema.model.worker import WARM

from forge_worker.prepare.cache import visible


class WarmParts:
    """Links below `root`, shared between threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def note(self, parts: Mapping[int, Path | None]) -> None:
        """Note the parts that a job uses, each with its place in a cache.

        The place of an image is None: whether the engine still has it is not checked.
        """
        # It is a hint: a job needs no note to start.
        with suppress(OSError):
            self._root.mkdir(mode=0o700, exist_ok=True)
            for part, place in parts.items():
                fresh = self._root / f".{secrets.token_hex(8)}"
                fresh.symlink_to(place or self._root)
                fresh.replace(self._root / str(part))

    def newest(self) -> list[int]:
        """Return the parts that are still there, the last used first; forget the others."""
        aged: list[tuple[int, Path]] = []
        for link in visible(self._root):
            with suppress(OSError, ValueError):
                int(link.name)
                aged.append((link.lstat().st_mtime_ns, link))
        links = [link for _, link in sorted(aged, reverse=True)]
        kept = [link for link in links if link.exists()][:WARM]
        for link in links:
            if link not in kept:
                with suppress(OSError):
                    link.unlink()
        return [int(link.name) for link in kept]

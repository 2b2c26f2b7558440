"""Which files of a project a job's patterns name, such as `*.pt` or `runs/**/best.ckpt`."""

import re
from collections.abc import Iterable
from functools import lru_cache

from forge_worker.files.safe_files import Parts

ANY_FOLDERS = "**"
# Python writes it beside every module, and never needs it again.
NEVER = "__pycache__"


class Patterns:
    """Globs over paths relative to a folder; one that names a folder names everything in it."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [tuple(part for part in one.split("/") if part) for one in patterns]
        self._files: set[Parts] = set()
        self._folders: set[Parts] = set()

    def __bool__(self) -> bool:
        return bool(self._patterns or self._files)

    def add(self, files: Iterable[Parts]) -> None:
        """Name these files too, whatever characters are in their paths."""
        new = [path for path in files if not self.match(path)]
        self._files.update(new)
        self._folders.update(path[:depth] for path in new for depth in range(len(path)))

    def match(self, path: Parts) -> bool:
        """Tell whether a file is named."""
        if path in self._files:
            return True
        return NEVER not in path and any(_matches(one, path) for one in self._patterns)

    def reach(self, folder: Parts) -> bool:
        """Tell whether anything in a folder may be named."""
        if folder in self._folders:
            return True
        return NEVER not in folder and any(_reaches(one, folder) for one in self._patterns)


def _matches(pattern: Parts, path: Parts) -> bool:
    if not pattern:
        return True
    if pattern[0] == ANY_FOLDERS:
        rest = pattern[1:]
        return not rest or any(_matches(rest, path[place:]) for place in range(len(path)))
    return bool(path) and _named(pattern[0], path[0]) and _matches(pattern[1:], path[1:])


def _reaches(pattern: Parts, folder: Parts) -> bool:
    for part, name in zip(pattern, folder, strict=False):
        if part == ANY_FOLDERS:
            return True
        if not _named(part, name):
            return False
    return True


def _named(pattern: str, name: str) -> bool:
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Not fnmatch's own cache, which a job could fill.
    import fnmatch  # noqa: PLC0415

    return re.compile(fnmatch.translate(pattern))

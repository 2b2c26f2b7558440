"""The files that make a job's checkpoints: its checkpoint folder, and what its patterns name."""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from forge_schema.model.bundles import WORK, destination
from forge_schema.model.quantities import counted

from forge_worker.files import links
from forge_worker.files.safe_files import (
    DEPTH,
    Listing,
    Parts,
    parts_of,
    status_from,
    status_of,
    target_of,
    walk,
)

ANY_FOLDERS = "**"
# Python writes it beside every module, and never needs it again.
NEVER = "__pycache__"

IN_CONTAINER = Path("/forge")

Targets = dict[str, str]
"""The path of each link to what it says."""

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class Patterns:
    """Globs over paths relative to a folder; one that names a folder names everything in it."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [
            tuple(part for part in pattern.split("/") if part) for pattern in patterns
        ]
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
        return NEVER not in path and any(_matches(pattern, path) for pattern in self._patterns)

    def reach(self, folder: Parts) -> bool:
        """Tell whether anything in a folder may be named."""
        if folder in self._folders:
            return True
        return NEVER not in folder and any(_reaches(pattern, folder) for pattern in self._patterns)


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


@dataclass(frozen=True, slots=True)
class FilesSeen:
    """What was seen at once: files, links that stay inside, and why others cannot be stored."""

    files: Listing = field(default_factory=dict)
    links: Targets = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def saved_files(root: Path, folder: str | None, patterns: Iterable[str]) -> "SavedFiles":
    """Return the places of an attempt's files: in a folder of the project, or in its own."""
    work = ("work",)
    place = (*work, *PurePosixPath(folder).parts) if folder else ("checkpoint",)
    tops = (root.absolute(), root.resolve(), IN_CONTAINER)
    seen = {parts: tuple(str(top.joinpath(*parts)) for top in tops) for parts in (place, work)}
    return SavedFiles(root, place, work, Patterns(patterns), seen)


def output_files(root: Path) -> "SavedFiles":
    """Return the places of an attempt's output files."""
    place: Parts = ("output",)
    tops = (root.absolute(), root.resolve(), IN_CONTAINER)
    seen = {place: tuple(str(top.joinpath(*place)) for top in tops)}
    return SavedFiles(root, place, ("work",), Patterns(()), seen)


class SavedFiles:
    """The places of an attempt's files below `root`, none of which is reached through a link.

    A path is relative to the checkpoint folder, or begins with `WORK` and is relative to the work
    folder. `folder` and `work` are these folders' places; `seen` are their absolute paths as the
    job sees them.
    """

    def __init__(
        self,
        root: Path,
        folder: Parts,
        work: Parts,
        patterns: Patterns,
        seen: Mapping[Parts, tuple[str, ...]],
    ) -> None:
        self.root = root
        self.folder = folder
        self.work = work
        self.patterns = patterns
        self._seen = seen
        self._tops = {top: root / top for top in (folder[0], work[0])}

    @property
    def path(self) -> Path:
        """The checkpoint folder."""
        return self.root.joinpath(*self.folder)

    def place(self, path: str) -> Parts:
        """Return where a file is, below the root."""
        parts = parts_of(path)
        return (*self.work, *parts[1:]) if parts[0] == WORK else (*self.folder, *parts)

    def located(self, path: str) -> tuple[Path, str]:
        """Return one of the job's folders, and where a file is in it."""
        top, *rest = self.place(path)
        return self._tops[top], "/".join(rest)

    def look(self) -> FilesSeen:
        """Return all files and links, at this moment."""
        if replaced := self.replaced():
            seen = FilesSeen(refused={"": replaced})
        else:
            seen = self._files_below("", self.folder)
        if self.patterns:
            named = self.named()
            seen = FilesSeen(
                seen.files | named.files, seen.links | named.links, seen.refused | named.refused
            )
        return seen

    def named(self) -> FilesSeen:
        """Return what the patterns name in the work folder."""
        return self._files_below(f"{WORK}/", self.work)

    def _files_below(self, before: str, start: Parts) -> FilesSeen:
        seen, raw = FilesSeen(), {}
        folders = {before.rstrip("/")}
        for parts, status in self._walked(before, start):
            path = before + "/".join(parts)
            kind = stat.S_IFMT(status.st_mode)
            if path == WORK:
                seen.refused[path] = "has a name that Forge uses itself"
            elif kind == stat.S_IFREG:
                seen.files[path] = status_from(status)
            elif kind == stat.S_IFLNK:
                raw[path] = target_of(self.root, (*start, *parts))
            elif kind != stat.S_IFDIR:
                seen.refused[path] = f"is {KINDS.get(kind, 'a special file')}"
            elif len(parts) > DEPTH:
                seen.refused[path] = f"lies deeper than {counted(DEPTH, 'folder')}"
            else:
                folders.add(path)
        targets = {path: target for path, target in raw.items() if target is not None}
        self._sort(targets, before, start, {*seen.files, *folders, *targets}, seen)
        return seen

    def _walked(self, before: str, start: Parts) -> Iterator[tuple[Parts, os.stat_result]]:
        def enters(parts: Parts) -> bool:
            below = parts[len(start) :]
            if before:
                return parts != self.folder and self.patterns.reach(below)
            return below != (WORK,)

        for parts, status in walk(self.root, start, enters):
            below = parts[len(start) :]
            folder = stat.S_ISDIR(status.st_mode)
            if not before or folder or self.patterns.match(below):
                yield below, status

    def _sort(
        self, raw: Targets, before: str, start: Parts, there: Collection[str], seen: FilesSeen
    ) -> None:
        """Add which links are stored, and why others are not."""
        for path, target in raw.items():
            roots = self._seen.get(start, ())
            link = links.relative(path, target, raw, before=before, roots=roots)
            dangling = link is None or destination(path, link) not in there
            if links.is_lock(path, target, dangling=dangling):
                continue
            if link is None:
                seen.refused[path] = f"is a link to {target!r}, which leads out of its folder"
            else:
                seen.links[path] = link

    def replaced(self) -> str | None:
        """Return what stands in place of the checkpoint folder, or of one above it."""
        for depth in range(1, len(self.folder) + 1):
            status = status_of(self.root, self.folder[:depth])
            if status is None:
                return None
            if not stat.S_ISDIR(status.st_mode):
                link = stat.S_ISLNK(status.st_mode)
                return f"was replaced by a {'link' if link else 'file'}"
        return None

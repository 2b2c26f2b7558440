"""Symbolic links that are stored: relative, and never leading out of their folder."""

from collections.abc import Iterable
from pathlib import PurePosixPath

# Files of a checkpoint below this name are files of the job's work folder.
WORK = ".forge-work"
MOST_TARGET_BYTES = 4095


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path`, relative to its folder, cannot lead out of it.

    It goes up first, at most to the folder, and then only down. So it also stays inside if a name
    on its way down is such a link itself.
    """
    parts = PurePosixPath(target).parts
    if not target or "\0" in target or target.startswith("/") or len(target) > MOST_TARGET_BYTES:
        return False
    ups = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= depth(path) and ".." not in parts[ups:]


def depth(path: str) -> int:
    """Return how many folders are above a path, up to the one that its links may not leave."""
    parts = PurePosixPath(path).parts
    return len(parts) - (2 if parts[:1] == (WORK,) else 1)


def destination(path: str, target: str) -> str:
    """Return where a link that stays inside leads: a path relative to its folder, "" for itself."""
    place = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            place.pop()
        else:
            place.append(part)
    return "/".join(place)


def below_a_link(paths: Iterable[str], links: Iterable[str]) -> str | None:
    """Return a path that lies below one of the links, so that it would be reached through it."""
    found = {str(PurePosixPath(link)) for link in links}
    if not found:
        return None
    for path in paths:
        if any(str(above) in found for above in PurePosixPath(path).parents):
            return path
    return None

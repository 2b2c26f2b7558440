"""Tell which files of several copies are of different moments, although they are one whole."""

import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from forge_worker.files.copies import Copies, Shape
from forge_worker.files.groups.together import Together
from forge_worker.files.safe_files import Listing, Where, status_of

# How long after the last write to one of several files that belong together all of them rest.
PAIR_NS = 500_000_000


class Folders:
    """Folders that a program replaces as a whole: by their inodes since the first look."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._inodes: dict[str, int] = {}

    def begin(self) -> None:
        """Forget all."""
        self._inodes = {}

    def replaced(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the beginning of the path of each folder of these that is another one by now."""
        now = {
            folder: self._inode(folder) for folder in {one for path in paths for one in above(path)}
        }
        replaced = [
            folder for folder in now if self._inodes.get(folder, now[folder]) != now[folder]
        ]
        self._inodes = now | self._inodes
        return tuple(f"{folder}/" for folder in replaced)

    def accept(self, replaced: Iterable[str]) -> None:
        """Go by these folders from now on."""
        for folder in replaced:
            self._inodes[folder.removesuffix("/")] = self._inode(folder.removesuffix("/"))

    def _inode(self, folder: str) -> int:
        root, place = self._where(folder)
        status = status_of(root, tuple(place.split("/")))
        return 0 if status is None else status.st_ino


def above(path: str) -> list[str]:
    """Return the folders above a path."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def uneven(
    together: Together, found: Listing, now: Listing, copies: Copies, absent: AbstractSet[str]
) -> set[str]:
    """Return files of groups of which not all were there and still at the same moment.

    A database in use was copied as it was at one.
    """
    paths = [path for path in found.keys() | now.keys() if together.group(path) is not None]
    moments = {together.group(p) for p, copy in copies.items() if copy.shape is Shape.MOMENT}
    return {
        path
        for path in paths
        if path not in absent
        and together.group(path) not in moments
        and _moved(path, found, now, copies)
    }


def young(together: Together, copies: Copies) -> set[str]:
    """Return files of groups that were just written: the others may follow.

    Those of a database in use were copied as they were at one moment.
    """
    now_ns = time.time_ns()
    return {
        path
        for path, copy in copies.items()
        if copy.shape is not Shape.MOMENT
        and together.group(path) is not None
        and abs(now_ns - copy.status[1]) < PAIR_NS
    }


def _moved(path: str, found: Listing, now: Listing, copies: Copies) -> bool:
    copy = copies.get(path)
    if copy is None:
        return found.get(path) != now.get(path)
    return copy.shape is Shape.GROWN or (copy.sound and copy.status != now.get(path))

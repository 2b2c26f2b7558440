"""Copy the databases of a folder that programs have open."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_worker.files.copies import UNSEEN, Copies, Copy, FileShape
from forge_worker.files.database_moments import (
    DatabaseFiles,
    in_folder,
    of_folder,
    recognised,
    taken,
)
from forge_worker.files.groups import FOLDER, Together
from forge_worker.files.rest import open_for_writing
from forge_worker.files.safe_files import Listing, Where, opened


@dataclass(frozen=True, slots=True)
class Means:
    """What copies need: a place for each, the disk for so many bytes, and leave to go on."""

    place: Callable[[], Path]
    room: Callable[[int], bool]
    go_on: Callable[[], None]


class DatabasesInUse:
    """Copies databases in use; `absent` are their files that exist only at other moments.

    A database that changed during all tries for one checkpoint is not tried again for it.
    """

    def __init__(self, where: Where, together: Together) -> None:
        self._where = where
        self._together = together
        self.absent: set[str] = set()
        self._busy: set[str] = set()

    def begin(self) -> None:
        """Begin another checkpoint."""
        self.absent, self._busy = set(), set()

    def take(self, listing: Listing, changed: Listing, copies: Copies, means: Means) -> Listing:
        """Copy those that changed, and return what changed beside them."""
        left, done = dict(changed), set[str]()
        for path in sorted(changed):
            if path not in done:
                members = self._together.with_all([path])
                done |= members
                base = self._in_use(path, listing, changed)
                if base is not None:
                    left = {path: status for path, status in left.items() if path not in members}
                    self._take(base, members, listing, copies, means)
        return left

    def recovers(self, path: str, listing: Listing) -> bool:
        """Tell whether a file is of a database, which recovers from a kill."""
        return self._main(path, listing) is not None

    def _main(self, path: str, listing: Listing) -> DatabaseFiles | str | None:
        """Return the database that a file is of, or the folder that is one."""
        group = self._together.group(path)
        if group is not None and group.endswith(FOLDER):
            folder = group.removesuffix(FOLDER)
            return folder if in_folder(folder, "CURRENT") in listing else None
        main = group if group is not None and self._together.group(group) == group else path
        with suppress(OSError, KeyError):
            return recognised(self._where, main, listing[main][0])
        return None

    def _in_use(self, path: str, listing: Listing, changed: Listing) -> DatabaseFiles | None:
        base, members = self._main(path, listing), self._together.with_all([path])
        if isinstance(base, str):
            base = of_folder(base, members & listing.keys())
        written = base is not None and any(map(self._written, members & changed.keys()))
        return base if written else None

    def _written(self, path: str) -> bool:
        with suppress(OSError), opened(*self._where(path)) as file:
            return open_for_writing(file) is not False
        return True

    def _take(
        self, base: DatabaseFiles, members: set[str], listing: Listing, copies: Copies, means: Means
    ) -> None:
        there = members & listing.keys()
        had = {path: copies[path] for path in there if path in copies}
        if had and all(copy.sound and copy.status == listing[path] for path, copy in had.items()):
            return
        moment = None
        size = sum(listing[path][0] for path in there)
        if members.isdisjoint(self._busy) and means.room(size):
            with suppress(OSError):
                moment = taken(self._where, base, means.place, means.go_on)
        for path in members:
            copies.pop(path, None)
        self.absent -= members
        if moment is None:
            self._busy |= members
            for path in there:
                status = listing[path]
                copies[path] = Copy(status, status[0], FileShape.TORN, seen=UNSEEN, written=True)
            return
        self.absent |= members - moment.keys()
        for path, (status, size, place) in moment.items():
            copies[path] = Copy(status, size, FileShape.MOMENT, place, written=True)

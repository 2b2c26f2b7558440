"""Which files a program may have been writing when it was killed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forge_worker.files.copies import Copy
from forge_worker.files.formats.wholeness import Whole, wholeness
from forge_worker.files.safe_files import Status, entered

# A program that was writing to a file has done so this shortly before, at least …
LAST_MOMENTS_NS = 2_000_000_000
# … and this shortly after the signal that ended it was sent. One that writes later handled it.
REACTION_NS = 50_000_000
# A program that lives on for so long has handled a signal, and then ended by itself.
HANDLED_NS = 2_000_000_000
SIGNAL_BASE, LAST_SIGNAL, SIGKILL = 128, 64, 9
# Looks at which a file of one size was open, after which it counts as changed in place for good.
LOOKS_IN_PLACE = 2


@dataclass(frozen=True, slots=True)
class Kill:
    """When a program was killed; `asked` if it was told to stop, which it may have handled.

    Nobody saw it if `at_ns` is 0.
    """

    at_ns: int
    asked: bool = False

    def met(self, mtime_ns: int) -> bool:
        """Tell whether a write at this time was among a program's last ones."""
        if self.asked and mtime_ns > self.at_ns + REACTION_NS:
            return False
        return mtime_ns >= self.at_ns - LAST_MOMENTS_NS


def kill(
    code: int | None,
    *,
    out_of_memory: bool,
    asked_ns: int,
    ended_ns: int,
    caught: bool | None = None,
) -> Kill | None:
    """Return how a program was killed; None if it ended by itself.

    Args:
        code: its exit code; None if it is not known.
        out_of_memory: whether the kernel killed some of it.
        asked_ns: when it was told to stop, or 0.
        ended_ns: when its end was noticed, or 0 if it may have been long before.
        caught: whether it had a handler for the signal, whose last act may have been to save; None
            if that could not be seen, so that only the time can tell.
    """
    if code is None or out_of_memory or code == SIGNAL_BASE + SIGKILL:
        return Kill(ended_ns)
    if not SIGNAL_BASE < code <= SIGNAL_BASE + LAST_SIGNAL:
        return None
    if not asked_ns or caught is False:
        return Kill(ended_ns)
    if caught:
        return None
    return None if ended_ns - asked_ns > HANDLED_NS and ended_ns else Kill(asked_ns, asked=True)


class Openings:
    """Files that processes could write to at the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Status, int]] = {}

    def note(self, copies: Mapping[str, Copy]) -> None:
        """Record what a look has found."""
        for path, copy in copies.items():
            (size, _, inode), looks = self._seen.pop(path, ((-1, 0, 0), 0))
            if copy.written:
                again = (size, inode) == (copy.status[0], copy.status[2])
                self._seen[path] = copy.status, looks + 1 if again else 1

    def had(self, path: str, status: Status) -> bool:
        """Tell whether a file was open, and was not written to since."""
        return path in self._seen and self._seen[path][0] == status

    def in_place(self, path: str, status: Status) -> bool:
        """Tell whether a file was open at several looks and always had this size."""
        (size, _, inode), looks = self._seen.get(path, ((-1, 0, 0), 0))
        return looks >= LOOKS_IN_PLACE and (size, inode) == (status[0], status[2])


@dataclass(frozen=True, slots=True)
class Doubt:
    """Whether a file may be half, since its program was killed; `stored` if a version of it is."""

    kill: Kill
    root: Path
    relative: str
    path: str
    openings: Openings
    stored: bool

    def __call__(self, file: BinaryIO, status: Status) -> bool:
        """Tell it of a file with this status."""
        whole = wholeness(file, self.path, status[0])
        return whole is Whole.NO or (whole is Whole.UNKNOWN and self._written_last(file, status))

    def _written_last(self, file: BinaryIO, status: Status) -> bool:
        """Tell whether the program was writing to a file when it was killed.

        It was not if it renamed the file since, or went on to make or rename something beside it.
        A file that is changed in place all the time has no better version.
        """
        if not self.stored and self.openings.in_place(self.path, status):
            return False
        if self.openings.had(self.path, status):
            return True
        if not self.kill.met(status[1]):
            return False
        changed_ns = os.fstat(file.fileno()).st_ctime_ns
        moved_on = changed_ns > status[1] or self._folder_changed_ns() >= status[1]
        return status[0] == 0 or not moved_on

    def _folder_changed_ns(self) -> int:
        with entered(self.root, tuple(self.relative.split("/")[:-1])) as folder:
            return os.fstat(folder).st_mtime_ns

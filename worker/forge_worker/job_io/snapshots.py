"""Hold each file of a checkpoint folder open, or take a consistent copy of it."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copy, Part, Shape, held_open, steady_copy
from forge_worker.files.safe_files import Listing
from forge_worker.files.saved_files import SavedFiles
from forge_worker.job_io.checkpoint_notes import CheckpointNotes

# How many files are held open at once, the largest; others are copied.
MOST_HELD = 256
# A copy of a file of up to this size is cheaper than a second try if it is rewritten meanwhile.
COPIED_BYTES = 1 << 20
# What copies may take beside the job's share of the disk.
SPARE_BYTES = 16 << 20
# Nothing is known of a file for whose copy there is no room.
UNSEEN = Part(0, hashlib.sha256().hexdigest(), stored=False)

Copies = dict[str, Copy]


class Snapshots:
    """Copies of a job's files, taken again and again.

    `torn` has the digests of files that were being written, `rewritten` the files that were
    rewritten in place while they were sent: they are copied from then on. `ended` means that no
    process can write to the folder. `look` lists the files to store. `left` returns how many bytes
    of its share of the disk the job has left, beside a folder of copies.
    """

    def __init__(
        self,
        saved: SavedFiles,
        look: Callable[[], Listing],
        notes: CheckpointNotes,
        go_on: Callable[[], None],
        chunk_bytes: int,
        *,
        left: Callable[[Path], int],
    ) -> None:
        self._saved = saved
        self._left = left
        self._look = look
        self._notes = notes
        self._go_on = go_on
        self._chunk_bytes = chunk_bytes
        self.torn: dict[str, Part] = {}
        self.rewritten: set[str] = set()
        # The name of a copy is never used again: an earlier one may be kept.
        self._names = count()
        self.ended = False

    def take(
        self,
        changed: Listing,
        copies: Copies,
        stored: Mapping[str, Entry],
        into: Path,
        files: ExitStack,
    ) -> bool:
        """Copy or hold files that changed since their last copy; False if one cannot be read.

        A file that must be copied, but for which the disk has no room, counts as being written.
        """
        room = _Room(partial(self._left, into))
        for path in copies.keys() - changed.keys():
            del copies[path]
        largest = sorted(changed.items(), key=lambda found: found[1][0], reverse=True)
        for path, status in largest:
            if path in copies and copies[path].sound and copies[path].status == status:
                continue
            try:
                held = self._held(path, status[0], copies, files)
                if held is None and not room.takes(status[0]):
                    # It may be stored before it is rewritten again.
                    held = self._opened(path, copies, files)
                    copies[path] = held or Copy(status, status[0], Shape.TORN, seen=UNSEEN)
                    continue
                place = into / str(next(self._names))
                copies[path] = held or self._copied(path, place, stored.get(path))
            except FileNotFoundError:
                copies.pop(path, None)
            except OSError as error:
                words = f"no checkpoint was stored, because {path!r} cannot be read: {error}"
                self._notes.say(f"closed {path}", words)
                return False
        return True

    def still(self, found: Listing, copies: Copies) -> bool:
        """Return whether the folder is as it was copied, except for files that have only grown."""
        grown = {path for path, copy in copies.items() if copy.shape is Shape.GROWN}
        now = {path: status for path, status in self._look().items() if path not in grown}
        seen = {path: status for path, status in found.items() if path not in grown}
        seen |= {path: copies[path].status for path in seen.keys() & copies.keys()}
        return now == seen and all(copy.sound for copy in copies.values())

    def note_torn(self, copies: Copies) -> None:
        """Remember the files that were being written."""
        self.torn = {path: copy.seen for path, copy in copies.items() if copy.seen is not None}

    def _held(self, path: str, size: int, copies: Copies, files: ExitStack) -> Copy | None:
        if size <= min(self._chunk_bytes, COPIED_BYTES) or path in self.rewritten:
            return None
        return self._opened(path, copies, files)

    def _opened(self, path: str, copies: Copies, files: ExitStack) -> Copy | None:
        if sum(copy.held is not None for copy in copies.values()) >= MOST_HELD:
            return None
        return held_open(*self._saved.located(path), files, ended=self.ended)

    def _copied(self, path: str, into: Path, stored: Entry | None) -> Copy:
        known = self.torn.get(path)
        if stored is not None:
            known = Part(stored.size, stored.sha256, chunk_bytes=stored.chunk_bytes)
        place = self._saved.located(path)
        return steady_copy(*place, into, known, self._go_on, ended=self.ended)


class _Room:
    """The disk for copies: a little in any case, then what is left of the job's share."""

    def __init__(self, left: Callable[[], int]) -> None:
        self._left: Callable[[], int] | None = left
        self._bytes = SPARE_BYTES

    def takes(self, size: int) -> bool:
        """Take this many bytes; False if there are not as many."""
        if size > self._bytes and self._left is not None:
            self._bytes += max(0, self._left())
            self._left = None
        if size > self._bytes:
            return False
        self._bytes -= size
        return True

"""Hold each file of a checkpoint folder open, or take a consistent copy of it."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import time_ns

from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import (
    UNSEEN,
    CopiedPart,
    Copies,
    Copy,
    FileShape,
    SmallCopies,
    held_open,
    steady_copy,
)
from forge_worker.files.databases import DatabasesInUse, Means
from forge_worker.files.groups import ReplacedFolders, Together, mixed, uneven, young
from forge_worker.files.kills import Doubt, Kill, Openings, ProgramEnd
from forge_worker.files.safe_files import Listing, Status
from forge_worker.files.save_order import APPENDED, EVENTS, MOVING, Writes, halfway, removed
from forge_worker.files.saved_files import SavedFiles
from forge_worker.job_io.logs import CheckpointNotes
from forge_worker.transfers.checkpoint_files import SMALL_BYTES, contents

# How many files are held open at once, the largest; others are copied.
MOST_HELD = 256
# A copy of a file of up to this size is cheaper than a second try if it is rewritten meanwhile.
COPIED_BYTES = SMALL_BYTES
# The name of the file of their copies, among those of others.
SMALL = "small"
# What copies may take beside the job's share of the disk.
SPARE_BYTES = 16 << 20
# How often a folder that was replaced as a whole meanwhile is copied again at once.
RETAKES = 5


class Snapshots:
    """Copies of a job's files, taken again and again.

    `torn` has the digests of files that were being written, `kept` also those that belong with one
    of them: their last stored version stays. `rewritten` are the files that were rewritten in place
    while they were sent: they are copied from then on. `look` lists the files to store. `left`
    returns how many bytes of its share of the disk the job has left, beside a folder of copies.
    """

    def __init__(
        self,
        saved: SavedFiles,
        look: Callable[[], Listing],
        notes: CheckpointNotes,
        go_on: Callable[[], None],
        program: ProgramEnd,
        *,
        chunk_bytes: int,
        left: Callable[[Path], int],
    ) -> None:
        self._saved = saved
        self._left = left
        self._look = look
        self._notes = notes
        self._go_on = go_on
        self._small_bytes = min(chunk_bytes, COPIED_BYTES)
        self.torn: dict[str, CopiedPart] = {}
        self.kept: set[str] = set()
        self.halfway: tuple[str, ...] | None = None
        self.rewritten: set[str] = set()
        self._together = Together()
        self._databases = DatabasesInUse(saved.located, self._together)
        self._folders = ReplacedFolders(saved.located)
        self._openings = Openings()
        self._writes = Writes()
        # The name of a copy is never used again: an earlier one may be kept.
        self._names = count()
        self._listing: Listing = {}
        self._now: Listing = {}
        self._stored: Mapping[str, Entry] = {}
        self._program = program

    @property
    def absent(self) -> set[str]:
        """Files of databases that did not exist at the moment of their copy."""
        return self._databases.absent

    def begin(self) -> None:
        """Begin another checkpoint."""
        self._folders.begin()
        self._databases.begin()

    def see(self, listing: Listing) -> None:
        """Go by these files, from now on."""
        self._listing = listing

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
        listing, room, self._stored = self._listing, _Room(partial(self._left, into)), stored
        small = SmallCopies(into / SMALL, self._small_bytes, contents(stored.values()), files)
        turn = _Taking(listing, copies, stored, into, files, room, small)
        for path in copies.keys() - changed.keys():
            del copies[path]
        self._together.look(listing.keys() | stored.keys())
        if self._program.kill is not None and not self._program.kill.at_ns:
            self._program.kill = Kill(max((status[1] for status in listing.values()), default=0))
        for _ in range(RETAKES):
            left = changed if self._program.over else self._take_databases(listing, changed, turn)
            if not all(self._take_one(path, left[path], turn) for path in self._in_turn(left)):
                return False
            if not (replaced := self._folders.replaced(changed)):
                break
            self._folders.accept(replaced)
            for path in [path for path in copies if path.startswith(replaced)]:
                del copies[path]
        return True

    def _in_turn(self, files: Listing) -> list[str]:
        """Sort the largest first, which are held open, and small ones so that folders are kept."""
        small = self._small_bytes
        return sorted(files, key=lambda path: (min(0, small - files[path][0]), path))

    def _take_databases(self, listing: Listing, changed: Listing, turn: "_Taking") -> Listing:
        means = Means(partial(self._place, turn), turn.room.takes, self._go_on)
        return self._databases.take(listing, changed, turn.copies, means)

    def _take_one(self, path: str, status: Status, turn: "_Taking") -> bool:
        """Copy or hold a file; False if it cannot be read."""
        if path in turn.copies and turn.copies[path].sound and turn.copies[path].status == status:
            return True
        try:
            turn.copies[path] = self._taken(path, status, turn)
        except FileNotFoundError:
            turn.copies.pop(path, None)
        except OSError as error:
            words = f"no checkpoint was stored, because {path!r} cannot be read: {error}"
            self._notes.say(f"closed {path}", words)
            return False
        return True

    def _taken(self, path: str, status: Status, turn: "_Taking") -> Copy:
        doubt, held = self._doubt(path, turn), None
        if status[0] > self._small_bytes and path not in self.rewritten:
            held = self._opened(path, turn, doubt)
        if held is None and not turn.room.takes(status[0]):
            # It may be stored before it is rewritten again.
            held = self._opened(path, turn, doubt)
            return held or Copy(status, status[0], FileShape.TORN, seen=UNSEEN)
        return held or self._copied(path, turn, doubt)

    def _opened(self, path: str, turn: "_Taking", doubt: Doubt | None) -> Copy | None:
        if sum(copy.held is not None for copy in turn.copies.values()) >= MOST_HELD:
            return None
        over, place = self._program.over, self._saved.located(path)
        return held_open(*place, turn.files, ended=over, doubt=doubt)

    def _copied(self, path: str, turn: "_Taking", doubt: Doubt | None) -> Copy:
        seen = known = self.torn.get(path)
        if (stored := turn.stored.get(path)) is not None:
            known = CopiedPart(stored.size, stored.sha256, chunk_bytes=stored.chunk_bytes)
        elif doubt is not None and (path.endswith(APPENDED) or EVENTS in path):
            known = UNSEEN
        return steady_copy(
            *self._saved.located(path),
            partial(self._place, turn),
            known,
            self._go_on,
            small=turn.small,
            ended=self._program.over,
            seen=seen,
            doubt=doubt,
        )

    def _place(self, turn: "_Taking") -> Path:
        return turn.into / str(next(self._names))

    def _doubt(self, path: str, turn: "_Taking") -> Doubt | None:
        """Return how to judge whether a file is half; None if its program cannot have left one."""
        program = self._program
        if not program.over or program.kill is None:
            return None
        if self._databases.recovers(path, turn.listing):
            return None
        root, relative = self._saved.located(path)
        openings, stored = self._openings, path in turn.stored
        return Doubt(program.kill, root, relative, path, openings, stored=stored)

    def still(self, listing: Listing, copies: Copies) -> bool:
        """Return whether the folder is as it was copied, except for files that go on changing."""
        moving = {path for path, copy in copies.items() if copy.shape in MOVING} | self.absent
        self._writes.note(copies, self._stored)
        self._now = self._look()
        now = {path: status for path, status in self._now.items() if path not in moving}
        seen = {path: status for path, status in listing.items() if path not in moving}
        seen |= {path: copies[path].status for path in seen.keys() & copies.keys()}
        if now != seen or not all(copy.sound for copy in copies.values()):
            return False
        return self._program.over or not (
            young(self._together, copies)
            or removed(self._now, copies, self._stored, killed=True)
            or self._halfway(self._now, copies)
        )

    def judge(
        self, listing: Listing, changed: Listing, copies: Copies, *, still: bool, whole: bool
    ) -> None:
        """Note the files that were being written, and those that belong with one of them.

        If `whole`, the program said that all of a save is there.
        """
        now = self._now if still else self._look()
        self.torn = {path: copy.seen for path, copy in copies.items() if copy.seen is not None}
        self._openings.note(copies)
        self._writes.note(copies, self._stored)
        torn = set(self.torn) | uneven(self._together, listing, now, copies, self.absent)
        if not self._program.over:
            torn |= young(self._together, copies)
        if not self._program.over or self._program.kill is not None:
            at_ns = self._program.kill.at_ns if self._program.kill else time_ns()
            torn |= mixed(self._together, now, copies, self._stored, at_ns)
        if replaced := self._folders.replaced(changed):
            torn |= {path for path in (*copies, *listing, *now) if path.startswith(replaced)}
        self.kept = self._together.with_all(torn)
        settled = whole or (still and not self._program.over)
        self.halfway = None if settled else self._halfway(now, copies)
        if still and not (self.kept or self.halfway):
            self._writes.note(copies, self._stored, quiet=True)
        if self.halfway and self._program.over:
            self.kept = {*now, *copies, *self._stored}

    def _halfway(self, now: Listing, copies: Copies) -> tuple[str, ...] | None:
        """Return files of an unfinished save; while it runs, a program rewrites one of them."""
        kill = self._program.kill
        if self._program.over and (
            kill is None or any(kill.handled(copy.status[1]) for copy in copies.values())
        ):
            # It ended by itself, or by its handler of a signal, once it had saved.
            return None
        rewritten = {
            path
            for path in copies.keys() & self._stored.keys() & now.keys()
            if copies[path].seen is not None
            and not self._openings.in_place(path, now[path])
            and (self._program.over or now[path][0] < self._stored[path].size)
        }
        at_ns = kill.at_ns if kill else time_ns()
        if file := removed(now, copies, self._stored, killed=self._program.over):
            return (file,)
        # While it runs, those that belong together wait for each other anyway.
        together = self._together if self._program.over else Together()
        return halfway(
            now, copies, self._stored, rewritten, at_ns, writes=self._writes, together=together
        )


@dataclass(frozen=True, slots=True)
class _Taking:
    """One turn: the files, the copies so far, what is stored, and where further copies go."""

    listing: Listing
    copies: Copies
    stored: Mapping[str, Entry]
    into: Path
    files: ExitStack
    room: "_Room"
    small: SmallCopies


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

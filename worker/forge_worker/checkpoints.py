"""The checkpoint sync: the job's checkpoint folder to the store while it runs, and back."""

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, time_ns

from forge_schema.manifest import Entry, Manifest, sha256
from forge_schema.records import Checkpoint
from forge_schema.states import Reason

from forge_worker.attempt import Attempt, Stop, Stopped
from forge_worker.below import Listing, listing, opened
from forge_worker.gateway import Gateway
from forge_worker.loop import Loop
from forge_worker.objects import Objects
from forge_worker.restore import Restore
from forge_worker.staging import DiskFull, check_size, copy
from forge_worker.thinner import Thinner

TRIES = 3
# A file that was written so shortly before it was read may be written again with the same time.
FRESH_NS = 1_000_000_000


class CheckpointSync(Loop):
    """Stores the folder whenever it changed and stood still while it was read.

    Files that have not changed since the last checkpoint, this attempt's or an earlier one's, do
    not travel again, and are read again only where size, time and inode do not tell. A job that
    replaces its files by renaming is never caught half-way; one that writes in place may be,
    between two writes.
    """

    name = "checkpoints"

    def __init__(self, attempt: Attempt, store: Objects, gateway: Gateway, limit_mb: int) -> None:
        super().__init__(float(attempt.grant.spec["checkpoint_interval_s"]))
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._limit_mb = limit_mb
        self._folder = attempt.folders.checkpoint
        self._restore = Restore(attempt, store, gateway)
        self.thinner = Thinner(attempt, gateway)
        self._number = attempt.places["checkpoint_number"]
        self._stored: Listing = {}
        self._keys: dict[str, str] = {}
        self._known: dict[str, Entry] = {}
        self._unreadable: set[str] = set()
        self._refused = False
        # What the last one took, in seconds: a notice must leave as much.
        self.took_s = 0.0

    def restore(self) -> None:
        """Put the newest sound checkpoint into the folder, if there is one.

        Raises as `Restore.run`.
        """
        restored = self._restore.run()
        if restored is None:
            return
        if restored.own:
            # Another job's objects are not referred to: they live no longer than that job wants.
            self._remember(restored.files)
            self._known = {entry.path: entry for entry in restored.files}
        self._stored = listing(self._folder)

    def recall(self) -> None:
        """Go on after an earlier agent: what is stored of the job need not travel again."""
        self._remember(self._restore.newest())

    def _remember(self, entries: tuple[Entry, ...]) -> None:
        self._keys = {entry.sha256: entry.key for entry in entries}

    def step(self) -> None:
        """Store the folder if it changed; one that never stands still waits for the next step.

        The job is stopped if the folder is too large for its share of the disk.
        """
        began, number = monotonic(), self._number
        with suppress(Stopped):
            try:
                self._stored_if_still()
            except DiskFull as error:
                self._refuse(error)
        if self._number > number:
            self.took_s = monotonic() - began
            self.thinner.ask()

    def _refuse(self, error: DiskFull) -> None:
        if not self._refused:
            self._refused = True
            self._attempt.note(f"no checkpoint is stored: {error.message}")
        self._attempt.request_stop(Stop(Reason.DISK_FULL, error.message))

    def _stored_if_still(self) -> None:
        for _ in range(TRIES):
            if self._stored_now():
                return

    def _stored_now(self) -> bool:
        began_ns = time_ns()
        before = listing(self._folder)
        if self._attempt.lost or not before or before == self._stored:
            return True
        check_size(before, "the checkpoint", self._limit_mb)
        same = {path for path in self._known if self._stored.get(path) == before.get(path)}
        staging = self._attempt.folders.staging / "checkpoint"
        shutil.rmtree(staging, ignore_errors=True)
        changed = {path: status for path, status in before.items() if path not in same}
        copies = self._copies(staging, changed)
        still = listing(self._folder) == before
        if still and copies is not None:
            kept = [self._known[path] for path in same]
            entries = self._store_copies(copies, kept)
            self._stored = before
            self._known = {e.path: e for e in entries if before[e.path][1] < began_ns - FRESH_NS}
        shutil.rmtree(staging, ignore_errors=True)
        return still

    def _store_copies(self, copies: dict[str, Path], kept: list[Entry]) -> tuple[Entry, ...]:
        new = [self._entry(path, copy) for path, copy in sorted(copies.items())]
        entries = tuple(sorted((*kept, *new), key=lambda entry: entry.path))
        manifest = Manifest(entries)
        # A number is used once: a row whose answer was lost must go on describing its object.
        number, self._number = self._number, self._number + 1
        self._attempt.places.keep(checkpoint_number=self._number)
        key = self._attempt.keys.checkpoint_manifest(number)
        self._store.put(key, manifest.dumped())
        row = Checkpoint(number, key, len(entries), manifest.size)
        if not self._gateway.add_checkpoint(self._attempt.fence, row):
            self._attempt.lose()
        else:
            self._remember(entries)
        return entries

    def _entry(self, path: str, copy: Path) -> Entry:
        digest = sha256(copy)
        if digest not in self._keys:
            key = self._attempt.keys.checkpoint_file(self._number, digest)
            self._store.put_file(key, copy, progress=self._attempt.while_held)
            self._keys[digest] = key
        return Entry(path, copy.stat().st_size, digest, self._keys[digest])

    def _copies(self, into: Path, files: Listing) -> dict[str, Path] | None:
        """Copy the files, so that what is read twice is the same; None when one cannot be read."""
        into.mkdir(parents=True)
        copies = {}
        for number, (relative, (size, _, _)) in enumerate(files.items()):
            with ExitStack() as held:
                try:
                    source = held.enter_context(opened(self._folder, relative))
                except OSError as error:
                    self._note_unreadable(relative, error)
                    return None
                copies[relative] = into / str(number)
                copy(source, copies[relative], size, self._attempt.while_held)
        return copies

    def _note_unreadable(self, relative: str, error: OSError) -> None:
        # A file that vanished shows in the next listing; one that is closed to us must be named.
        if not isinstance(error, FileNotFoundError) and relative not in self._unreadable:
            self._unreadable.add(relative)
            self._attempt.note(f"no checkpoint is stored, as {relative!r} cannot be read: {error}")

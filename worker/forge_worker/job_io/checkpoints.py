"""Store a job's checkpoint folder: periodically, at the job's own request, and at its end."""

import shutil
from collections.abc import Set as AbstractSet
from math import inf
from pathlib import Path
from threading import Thread
from time import monotonic, time_ns

import structlog
from forge_schema.model.attempt_records import Checkpoint
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Reason
from forge_schema.storage import ObjectTooLarge
from forge_schema.storage.manifest import Entry, Manifest

from forge_worker.attempt.attempt import Attempt, Stop, Stopped, with_advice
from forge_worker.clock import seconds
from forge_worker.files.copies import Copy, DiskFull, Part, Shape, check_size, steady_copy
from forge_worker.files.safe_files import Listing, listing, status_of
from forge_worker.job_io.checkpoint_notes import CheckpointNotes
from forge_worker.job_io.checkpoint_thinner import Thinner
from forge_worker.job_io.restore import Restore
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects

TRIES = 3
PAUSE_S = 0.5
# How many steps wait for a file that is being written; the next one omits it.
PATIENT_STEPS = 1
# A file written this shortly before being read could be written again with the same mtime.
FRESH_NS = 1_000_000_000
# Bounds of the time for the last checkpoint of a successful job, which may take twice as long as
# the one before.
LAST_S, LAST_MOST_S = 60.0, 600.0
WATCH_S = 0.5

Copies = dict[str, Copy]
REQUEST_POLL_S = 0.5

log = structlog.get_logger(__name__)


class CheckpointSync(Loop):
    """Stores the folder whenever it has changed, with a consistent copy of each file.

    Files that have not changed since the last checkpoint, of this attempt or an earlier one, are
    not uploaded again, and are read only if size, mtime and inode are inconclusive. A checkpoint
    waits for a file that is being rewritten; eventually it contains the last stored version
    instead.
    """

    name = "checkpoints"

    def __init__(self, attempt: Attempt, store: Objects, gateway: Gateway, limit_mb: int) -> None:
        period_s = float(attempt.grant.spec["checkpoint_interval_s"])
        super().__init__(period_s, woken=attempt.checkpoint_asked)
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._limit_mb = limit_mb
        self._folder = attempt.folders.checkpoint
        self._restore = Restore(attempt, store, gateway)
        self._notes = CheckpointNotes(attempt)
        self.thinner = Thinner(attempt, gateway)
        self._number = attempt.cursors["checkpoint_number"]
        self._stored: Listing = {}
        self._files: tuple[Entry, ...] = ()
        self._keys: dict[str, str] = {}
        self._known: dict[str, Entry] = {}
        # The digests of files that were being written.
        self._seen: dict[str, Part] = {}
        self._missed = 0
        self._too_large = inf
        self._until = inf
        self._in_time = False
        # Set once no process can write to the folder.
        self.job_ended = False
        # Duration of the last upload in seconds, which a preemption notice must leave.
        self.took_s = 0.0

    def restore(self) -> None:
        """Restore the newest sound checkpoint to the folder, if there is one.

        Raises as `Restore.run`.
        """
        restored = self._restore.run()
        if restored is None:
            return
        if restored.own:
            # Another job's objects are not referenced, since that job decides how long they are
            # kept.
            self._remember(restored.files)
            self._known = {entry.path: entry for entry in restored.files}
        self._stored = listing(self._folder)

    def recall(self) -> None:
        """Resume after an earlier agent, without uploading again what it has stored."""
        self._remember(self._restore.newest())

    def step(self) -> None:
        """Store the folder if it has changed, waiting one more step for a file being written.

        Of a gang, only rank 0's checkpoints are stored, and all members start from them. The job is
        stopped if the folder exceeds its disk request.

        Raises:
            ForgeError: the store or the queue does not answer.
            OSError: this machine's disk is full or faulty.
        """
        if self._attempt.grant.rank > 0:
            return
        began, number = monotonic(), self._number
        staging = self._attempt.folders.staging / "checkpoint"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            self._store_changes(staging)
        except Stopped:
            return
        except DiskFull as error:
            self._notes.say(error.code, f"no checkpoint was stored: {error.message}")
            self._attempt.request_stop(Stop(Reason.DISK_FULL, error.message))
        except ObjectTooLarge as error:
            self._notes.say(error.code, f"no checkpoint was stored: {with_advice(error)}")
        except (ForgeError, OSError) as error:
            self._notes.failed(error, last=self.job_ended)
            raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        if self._number > number:
            self.took_s = monotonic() - began
            self.thinner.ask()

    def finish(self) -> None:
        """Store the last checkpoint of a successful job, if that is possible in limited time.

        Nothing is raised, because nothing depends on it: a failure is reported in the job's log.
        """
        limit_s = min(LAST_MOST_S, max(LAST_S, 2 * self.took_s))
        self._until = monotonic() + limit_s
        # A store that hangs must not delay the end.
        last = Thread(target=self._last, name="last checkpoint", daemon=True)
        last.start()
        while last.is_alive() and self._has_time():
            last.join(WATCH_S)
        if not self._in_time:
            words = "the last checkpoint was not stored: it took too long"
            self._notes.say("late", f"{words} (limit: {limit_s:.0f} s)")

    def _last(self) -> None:
        self.end()
        try:
            self.step()
        except Exception as error:
            expected = isinstance(error, ForgeError | OSError)
            job = self._attempt.fence.job_id
            log.warning("last_checkpoint_missing", job=job, error=str(error), exc_info=not expected)
        self._in_time = self._has_time()

    def _has_time(self) -> bool:
        """Return whether a checkpoint may continue; only a success's last one has a limit."""
        window = self._attempt.window
        leaves = window is not None and seconds() >= window.give_back_s
        return self._until == inf or (monotonic() < self._until and not leaves)

    def _store_changes(self, staging: Path) -> None:
        began_ns = time_ns()
        copies: Copies = {}
        staging.mkdir(parents=True)
        for turn in range(TRIES):
            if turn:
                self._ending.wait(PAUSE_S)
            found = listing(self._folder)
            if self._attempt.lost or not found or found == self._stored:
                return
            check_size(found, "the checkpoint", self._limit_mb)
            changed = self._changed(found)
            if any(size >= self._too_large for size, _, _ in changed.values()):
                return
            if not self._copy(changed, copies, staging):
                return
            if self._still(found, copies):
                break
        if not self._waits(copies, gone=changed.keys() - copies.keys()):
            self._store_found(found, copies, began_ns)

    def _changed(self, found: Listing) -> Listing:
        return {
            path: status
            for path, status in found.items()
            if path not in self._known or self._stored.get(path) != status
        }

    def _copy(self, changed: Listing, copies: Copies, into: Path) -> bool:
        """Copy files that changed since their last copy; False if one cannot be read."""
        for path in copies.keys() - changed.keys():
            del copies[path]
        stored = {entry.path: Part(entry.size, entry.sha256) for entry in self._files}
        for number, (path, status) in enumerate(changed.items()):
            if path in copies and copies[path].sound and copies[path].status == status:
                continue
            known = stored.get(path) or self._seen.get(path)
            try:
                copies[path] = steady_copy(
                    self._folder, path, into / str(number), known, self._go_on, ended=self.job_ended
                )
            except FileNotFoundError:
                copies.pop(path, None)
            except OSError as error:
                words = f"no checkpoint was stored, because {path!r} cannot be read: {error}"
                self._notes.say(f"closed {path}", words)
                return False
        return True

    def _go_on(self, _moved: int = 0) -> None:
        self._attempt.while_held()
        if not self._has_time():
            raise Stopped

    def _still(self, found: Listing, copies: Copies) -> bool:
        """Return whether the folder is as it was copied, except for files that have only grown."""
        grown = {path for path, copy in copies.items() if copy.shape is Shape.GROWN}
        now = {path: status for path, status in listing(self._folder).items() if path not in grown}
        seen = {path: status for path, status in found.items() if path not in grown}
        seen |= {path: copies[path].status for path in seen.keys() & copies.keys()}
        return now == seen and all(copy.sound for copy in copies.values())

    def _waits(self, copies: Copies, gone: AbstractSet[str]) -> bool:
        """Return whether to wait one more step, because files were being written or moved."""
        self._seen = {path: copy.part for path, copy in copies.items() if not copy.sound}
        self._missed = self._missed + 1 if self._seen or gone else 0
        return 0 < self._missed <= PATIENT_STEPS and not self.job_ended

    def _store_found(self, found: Listing, copies: Copies, began_ns: int) -> None:
        sound = {path: copy for path, copy in copies.items() if copy.sound}
        same = found.keys() - self._changed(found).keys()
        old = {entry.path: entry for entry in self._files if entry.path in self._seen}
        self._notes.busy(self._seen, old)
        new = [self._entry(path, copy) for path, copy in sorted(sound.items())]
        kept = [self._known[path] for path in same]
        files = tuple(sorted((*kept, *old.values(), *new), key=lambda entry: entry.path))
        if files and files != self._files:
            self._store_manifest(Manifest(files))
        whole = {path: c.status for path, c in sound.items() if c.part.size == c.status[0]}
        self._stored = {path: found[path] for path in same} | whole
        self._known = {
            entry.path: entry
            for entry in files
            if entry.path in self._stored and self._stored[entry.path][1] < began_ns - FRESH_NS
        }

    def _store_manifest(self, manifest: Manifest) -> None:
        # A number is used once: a row whose answer was lost must keep describing its object.
        number, self._number = self._number, self._number + 1
        self._attempt.cursors.keep(checkpoint_number=self._number)
        key = self._attempt.keys.checkpoint_manifest(number)
        self._store.put(key, manifest.dumped())
        row = Checkpoint(number, key, len(manifest.files), manifest.size)
        if not self._gateway.add_checkpoint(self._attempt.fence, row):
            self._attempt.lose()
            return
        self._remember(manifest.files)
        self._notes.stored()

    def _remember(self, files: tuple[Entry, ...]) -> None:
        self._files = files
        self._keys = {entry.sha256: entry.key for entry in files}

    def _entry(self, path: str, copy: Copy) -> Entry:
        part = copy.part
        if part.sha256 not in self._keys:
            key = self._attempt.keys.checkpoint_file(self._number, part.sha256)
            try:
                self._store.put_file(key, copy.path, progress=self._go_on)
            except ObjectTooLarge as error:
                # The file is not copied again until it is smaller.
                self._too_large = min(self._too_large, part.size)
                raise ObjectTooLarge(f"{path!r}: {error.message}", hint=error.hint) from error
            self._keys[part.sha256] = key
        return Entry(path, part.size, part.sha256, self._keys[part.sha256])


class CheckpointRequest(Loop):
    """Wakes the sync when the file is touched, and again if it was touched meanwhile."""

    name = "checkpoint call"

    def __init__(self, attempt: Attempt, sync: Loop) -> None:
        super().__init__(REQUEST_POLL_S)
        self._file = attempt.folders.save
        self._sync = sync
        self._seen: tuple[int, int] | None = None

    def step(self) -> None:
        found = status_of(self._file.parent, (self._file.name,))
        touched = None if found is None else (found.st_mtime_ns, found.st_ino)
        if touched not in {None, self._seen}:
            self._sync.wake()
        self._seen = touched

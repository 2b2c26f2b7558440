"""Store a job's checkpoint folder: periodically, at the job's own request, and at its end.

Older checkpoints are thinned out in the background.
"""

import shutil
from collections.abc import Set as AbstractSet
from math import inf
from pathlib import Path
from threading import Thread
from time import monotonic, time_ns

import structlog
from forge_schema.model.attempt_records import Checkpoint
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Reason
from forge_schema.queue.checkpoints import MOST
from forge_schema.storage import ObjectTooLarge
from forge_schema.storage.manifest import Entry, Manifest

from forge_worker.attempt.attempt import Attempt, Stop, Stopped, with_advice
from forge_worker.clock import seconds
from forge_worker.files.copies import Copy, DiskFull, Part, Shape, check_size, steady_copy
from forge_worker.files.safe_files import Listing, listing, status_of
from forge_worker.job_io.checkpoint_notes import CheckpointNotes
from forge_worker.job_io.restore import Restore
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects

THINNING_S = 60.0
KEEP: int = JobSpec.model_fields["keep_checkpoints"].default
TRIES = 3
PAUSE_S = 0.5
# So many steps wait for a file that is being written; the next goes without it.
PATIENT_STEPS = 1
# A file that was written so shortly before it was read may be written again with the same time.
FRESH_NS = 1_000_000_000
# For the last checkpoint of a job that succeeded there are twice as many seconds as for the one
# before, within these bounds.
LAST_S, LAST_MOST_S = 60.0, 600.0
WATCH_S = 0.5

Copies = dict[str, Copy]
REQUEST_POLL_S = 0.5

log = structlog.get_logger(__name__)


class Thinner(Loop):
    """Thins out once for each time that it was told to; what fails is done the next time.

    It stops before its next object when the attempt is to stop. A call that hangs is left alone.
    """

    name = "thinning"

    def __init__(self, attempt: Attempt, gateway: Gateway) -> None:
        super().__init__(THINNING_S)
        self._attempt = attempt
        self._gateway = gateway
        self._asked = False
        self._everywhere = True

    def ask(self) -> None:
        """Have it done now."""
        self._asked = True
        self.wake()

    def step(self) -> None:
        """Thin out, if it was asked for."""
        if not self._asked or not self._go_on():
            return
        self._asked = False
        # Once an attempt, whatever comes of it, and again only while there is much.
        everywhere, self._everywhere = self._everywhere, False
        fence, keep = self._attempt.fence, self._attempt.grant.spec.get("keep_checkpoints", KEEP)
        try:
            gone = self._gateway.thin_checkpoints(
                fence, keep, everywhere=everywhere, go_on=self._go_on
            )
        except ForgeError as error:
            log.warning("checkpoints_not_thinned", job=fence.job_id, error=error.message)
        else:
            self._everywhere = gone >= MOST

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  a store may take long
        """End without waiting for an answer."""
        super().end(0.0)

    def _go_on(self) -> bool:
        return not (self.ending or self._attempt.stopping.is_set())


class CheckpointSync(Loop):
    """Stores the folder whenever it changed, each file as it was at one moment.

    Files that have not changed since the last checkpoint, this attempt's or an earlier one's, do
    not travel again, and are read again only where size, time and inode do not tell. A file that is
    being rewritten is waited for; in the end its last stored version takes its place.
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
        # What was seen of files that were being written.
        self._seen: dict[str, Part] = {}
        self._missed = 0
        self._too_large = inf
        self._until = inf
        self._in_time = False
        # Set when nobody can write to the folder any more.
        self.job_ended = False
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

    def step(self) -> None:
        """Store the folder if it changed; for a file that is being written it waits one step more.

        The job is stopped if the folder is too large for its share of the disk.

        Raises:
            ForgeError: the store or the queue does not answer.
            OSError: this machine's disk is full or faulty.
        """
        began, number = monotonic(), self._number
        staging = self._attempt.folders.staging / "checkpoint"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            self._store_changes(staging)
        except Stopped:
            return
        except DiskFull as error:
            self._notes.say(error.code, f"no checkpoint is stored: {error.message}")
            self._attempt.request_stop(Stop(Reason.DISK_FULL, error.message))
        except ObjectTooLarge as error:
            self._notes.say(error.code, f"no checkpoint is stored: {with_advice(error)}")
        except (ForgeError, OSError) as error:
            self._notes.failed(error, last=self.job_ended)
            raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        if self._number > number:
            self.took_s = monotonic() - began
            self.thinner.ask()

    def finish(self) -> None:
        """Store what a job that succeeded has left, if that can be done soon.

        Nothing is raised, as nothing more depends on it: what fails is said in the job's log.
        """
        limit_s = min(LAST_MOST_S, max(LAST_S, 2 * self.took_s))
        self._until = monotonic() + limit_s
        # A store that hangs must not hold up the end.
        last = Thread(target=self._last, name="last checkpoint", daemon=True)
        last.start()
        while last.is_alive() and self._has_time():
            last.join(WATCH_S)
        if not self._in_time:
            words = "the last checkpoint is not stored: it takes too long"
            self._notes.say("late", f"{words} (it may take {limit_s:.0f} s)")

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
        """Tell whether the last checkpoint of a success may go on; of any other job it may."""
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
        """Copy what is not copied as it is now; False where a file is closed to us."""
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
                words = f"no checkpoint is stored, as {path!r} cannot be read: {error}"
                self._notes.say(f"closed {path}", words)
                return False
        return True

    def _go_on(self, _moved: int = 0) -> None:
        self._attempt.while_held()
        if not self._has_time():
            raise Stopped

    def _still(self, found: Listing, copies: Copies) -> bool:
        """Tell whether the folder is as it was copied, but for what has only grown."""
        grown = {path for path, copy in copies.items() if copy.shape is Shape.GROWN}
        now = {path: status for path, status in listing(self._folder).items() if path not in grown}
        seen = {path: status for path, status in found.items() if path not in grown}
        seen |= {path: copies[path].status for path in seen.keys() & copies.keys()}
        return now == seen and all(copy.sound for copy in copies.values())

    def _waits(self, copies: Copies, gone: AbstractSet[str]) -> bool:
        """Tell whether to wait one step more, since files were being written or moved."""
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
        # A number is used once: a row whose answer was lost must go on describing its object.
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
                # Until it is smaller, it is not even copied again.
                self._too_large = min(self._too_large, part.size)
                raise ObjectTooLarge(f"{path!r}: {error.message}", hint=error.hint) from error
            self._keys[part.sha256] = key
        return Entry(path, part.size, part.sha256, self._keys[part.sha256])


class CheckpointRequest(Loop):
    """Wakes the sync when the file was touched; once more when it was touched meanwhile."""

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

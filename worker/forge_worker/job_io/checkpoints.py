"""Store a job's checkpoint folder: periodically, at the job's own request, and at its end."""

import os
import shutil
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from threading import Thread
from time import monotonic, time_ns

import structlog
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.bundles import WORK
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.model.states import Reason
from forge_schema.storage import Objects, ObjectTooLarge
from forge_schema.storage.manifest import CHUNK_BYTES, Entry, Manifest

from forge_worker.attempt import LiveAttempt, Stop, Stopped, with_advice
from forge_worker.attempt_folders import DiskFull, check_size
from forge_worker.files.copies import Copies, FileChanged
from forge_worker.files.formats.folders import YOUNG_NS, whole
from forge_worker.files.groups import fleeting
from forge_worker.files.kills import ProgramEnd
from forge_worker.files.links import kept as links_with
from forge_worker.files.placing import give_times, place_checkpoint
from forge_worker.files.rest import in_memory
from forge_worker.files.safe_files import Listing, entries, weight
from forge_worker.files.saved_files import FilesSeen, Targets
from forge_worker.job_io.logs import CheckpointNotes
from forge_worker.job_io.occasions import (
    Commit,
    Commits,
    Following,
    SaveOccasion,
    Thinner,
    TimeLimit,
)
from forge_worker.job_io.restore import ForeignFiles, Restore, RestoredCheckpoint
from forge_worker.job_io.snapshots import Snapshots
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway
from forge_worker.transfers.checkpoint_files import CheckpointFiles, worn
from forge_worker.transfers.sending import StoredChunks

TRIES = 3
PAUSE_S = 0.5
# How many steps wait for a file that is being written; the next one omits it.
PATIENT_STEPS = 1
# … and how many for the rest of a save.
SAVE_STEPS = 3
# A file written this shortly before being read could be written again with the same mtime.
FRESH_NS = 1_000_000_000
# Bounds of the time for the last checkpoint of a successful job, which may take twice as long as
# the one before.
LAST_S, LAST_MOST_S = 60.0, 600.0
WATCH_S = 0.5
# The status of a file that is not there any more, but belongs to one that keeps its old version.
GONE = (0, 0, 0)

log = structlog.get_logger(__name__)


class CheckpointSync(Loop):
    """Stores the folder whenever it has changed, with a consistent copy of each file.

    Files that have not changed since the last checkpoint, of this attempt or an earlier one, are
    not uploaded again, and are read only if size, mtime and inode are inconclusive. A checkpoint
    waits for a file that is being rewritten; eventually it contains the last stored version
    instead. A file larger than `chunk_bytes` is stored in chunks.

    Once the program commits steps, the folder is stored only for these. Every rank of a run stores
    what is its own. One other than rank 0 uploads whatever has changed, and records a checkpoint
    once rank 0 has stored another one.
    """

    name = "checkpoints"

    def __init__(
        self,
        attempt: LiveAttempt,
        store: Objects,
        gateway: Gateway,
        limit_mb: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        period_s = float(attempt.grant.spec["checkpoint_interval_s"])
        super().__init__(period_s, woken=attempt.checkpoint_asked)
        self._attempt = attempt
        self._store, self._gateway = store, gateway
        self._limit_mb = limit_mb
        self._saved = attempt.saved
        self._foreign = ForeignFiles(attempt.folders.foreign)
        self._restore = Restore(attempt, store, gateway)
        self._commits = Commits(attempt)
        self._following = Following(attempt, gateway, self._commits)
        self._longest_s = period_s
        self._notes = CheckpointNotes(attempt)
        self.thinner = Thinner(attempt, gateway)
        self._number = attempt.cursors["checkpoint_number"]
        self._stored: Listing = {}
        # The links that were there then, and those seen at the last look.
        self._stored_links: Targets = {}
        self._links: Targets = {}
        self._project: FilesSeen | None = None
        self._files: tuple[Entry, ...] = ()
        self._chunk_bytes = chunk_bytes
        # Files of packs of which little is still used: they are stored again.
        self._worn: set[str] = set()
        self._known: dict[str, Entry] = {}
        self._missed = 0
        self._limit = TimeLimit(attempt)
        self.program = ProgramEnd()
        # Whether any signal ended it.
        self.cut_short = False
        # When the program was told to stop, in ns or 0, and whether it had a handler for that, if
        # that was seen.
        self.asked_ns = 0
        self.stop_caught: bool | None = None
        self._unsure: set[str] = set()
        # The newest checkpoint, the one before it, and when the files of the newest were seen.
        self._newest: tuple[Entry, ...] = ()
        self._earlier: tuple[Entry, ...] | None = None
        self._looked_ns = self._seen_ns = 0
        # Duration of the last upload in seconds, which a preemption notice must leave.
        self.took_s = 0.0

    @cached_property
    def _in_memory(self) -> bool:
        return in_memory(self._saved.root.stat().st_dev)

    # Most jobs have no checkpoint, and need neither of these.

    @cached_property
    def _sender(self) -> CheckpointFiles:
        stored, size = StoredChunks(self._attempt.folders.stored), self._chunk_bytes
        return CheckpointFiles(self._store, stored, size, self._go_on, self._may_pack)

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(
            self._saved,
            self._own,
            self._notes,
            self._go_on,
            self.program,
            chunk_bytes=self._chunk_bytes,
            left=self._disk_left,
        )

    def restore(self) -> None:
        """Restore the newest sound checkpoint to where the job expects it, if there is one.

        Raises as `Restore.run` and `place_checkpoint`.
        """
        if self._project is None:
            # What the job's patterns name in the project itself is not stored until it changes.
            self._project = self._saved.named() if self._saved.patterns else FilesSeen()
        restored = self._restore.run()
        with self._restore.begun_anew_after_failure():
            place_checkpoint(self._saved, self._attempt.folders.checkpoint)
        self._placed(restored or RestoredCheckpoint((), own=True), self._project)
        if restored is None:
            return
        if restored.own:
            # Another job's objects are not referenced, since that job decides how long they are
            # kept.
            self._remember(restored.files)
            self._known = {entry.path: entry for entry in restored.files if not entry.target}
        self._stored, self._stored_links = self._own(), self._links

    def _placed(self, restored: RestoredCheckpoint, project: FilesSeen) -> None:
        """Give restored files their times, and remember what is not this rank's to store."""
        entries = (*restored.files, *restored.others)
        times = {e.path: e.mtime_ns for e in entries if e.mtime_ns is not None}
        project = give_times(self._saved, times, project)
        look, others = self._saved.look(), {entry.path for entry in restored.others}
        files = project.files | {path: look.files[path] for path in look.files.keys() & others}
        links = project.links | {path: look.links[path] for path in look.links.keys() & others}
        self._foreign.keep(FilesSeen(files, links))

    def recall(self) -> None:
        """Resume after an earlier agent, without uploading again what it has stored."""
        recalled = self._restore.recalled()
        self._files, number = recalled.files, recalled.number
        self._newest = self._files
        paths = (PurePosixPath(entry.path).parts for entry in recalled.files)
        self._saved.patterns.add(parts[1:] for parts in paths if parts[0] == WORK)
        # Whatever belongs to an older checkpoint may have been removed.
        last = self._attempt.keys.checkpoint_file(number, "f" * 64) if number is not None else ""
        self._sender.resume(self._files, last)
        self._following.resume(recalled.follows)
        self._commits.resume(recalled.step)

    def idle(self) -> bool:
        """Tell whether there is nothing to store, and no other rank to follow."""
        if self._attempt.grant.rank > 0 or os.path.lexists(self._attempt.folders.save):
            return False
        # A folder that the program removed is empty; of one that it replaced, a step tells.
        saved = self._saved
        there = saved.patterns or saved.replaced() or entries(saved.root, saved.folder)
        return not there

    def step(self) -> None:
        """Store the folder if it has changed, waiting one more step for a file being written.

        The job is stopped if the folder exceeds its disk request.

        Raises:
            ForgeError: the store or the queue does not answer.
            OSError: this machine's disk is full or faulty.
        """
        self.period_s = min(2 * self.period_s, self._longest_s)
        began, number = monotonic(), self._number
        staging = self._attempt.folders.staging / "checkpoint"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            if self._following.look(ended=self.program.over):
                self._store_changes_steadily(staging)
        except Stopped:
            return
        except DiskFull as error:
            self._notes.say(error.code, f"no checkpoint was stored: {error.message}")
            self._attempt.request_stop(Stop(Reason.DISK_FULL, error.message))
        except ObjectTooLarge as error:
            self._notes.say(error.code, f"no checkpoint was stored: {with_advice(error)}")
        except (ForgeError, OSError) as error:
            self._notes.failed(error, last=self.program.over)
            raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        if self._number > number:
            self.took_s = monotonic() - began
            if self._attempt.grant.rank == 0:
                self.thinner.ask()

    def finish(self) -> None:
        """Store the last checkpoint of a successful job, if that is possible in limited time.

        Nothing is raised, because nothing depends on it: a failure is reported in the job's log.
        """
        if self.idle():
            return
        limit_s = min(LAST_MOST_S, max(LAST_S, 2 * self.took_s))
        self._limit.begin(limit_s)
        # A store that hangs must not delay the end.
        last = Thread(target=self._last, name="last checkpoint", daemon=True)
        last.start()
        while last.is_alive() and not self._limit.over():
            last.join(WATCH_S)
        if self._limit.gave_up:
            words = f"the last checkpoint {self._limit.gave_up}: it took too long"
            self._notes.say("late", f"{words} (limit: {duration_text(limit_s)})")

    def _last(self) -> None:
        self.end()
        self._limit.concerns_row = True
        try:
            self._go_on()
            self.step()
        except Stopped:
            return
        except Exception as error:
            expected = isinstance(error, ForgeError | OSError)
            job = self._attempt.fence.job_id
            log.warning("last_checkpoint_missing", job=job, error=str(error), exc_info=not expected)

    def _store_changes_steadily(self, staging: Path) -> None:
        for turn in range(TRIES):
            shutil.rmtree(staging, ignore_errors=True)
            # Without the attempt's own folder, which is gone if its end did not wait for this.
            staging.parent.mkdir(exist_ok=True)
            staging.mkdir()
            try:
                with ExitStack() as files:
                    self._store_changes(staging, files)
            except FileChanged:
                if turn == TRIES - 1:
                    raise
            else:
                return

    def _store_changes(self, staging: Path, files: ExitStack) -> None:
        began_ns = time_ns()
        occasion = self._occasion()
        if occasion is None:
            return
        self._doubt_what_came_late()
        self._worn = worn(self._files)
        copies: Copies = {}
        self._snapshots.begin()
        for turn in range(TRIES):
            if turn:
                self._ending.wait(PAUSE_S)
            listing, links = self._own(), self._links
            moved = (listing, links) != (self._stored, self._stored_links)
            moved = moved or any(map(self._rereads, listing))
            if self._attempt.lost or not (occasion.due or ((listing or links) and moved)):
                return
            changed = self._changed(listing)
            if not self._take(listing, changed, copies, staging, files):
                return
            still = self._snapshots.still(listing, copies)
            if still and self._links == links:
                break
        else:
            # It never stood still. What a copied file names, such as a step, is there by now.
            listing, links = self._own(), self._links
            changed = self._changed(listing)
            kept = {path: copies[path].status for path in copies.keys() & listing.keys()}
            if not self._take(listing, {**changed, **kept}, copies, staging, files):
                return
        if self._commits.pending() != occasion.commit:
            raise FileChanged("the program committed a step while the folder was copied")
        self._looked_ns = time_ns()
        self._snapshots.judge(listing, changed, copies, still=still, whole=occasion.due)
        if not self._waits(gone=changed.keys() - copies.keys() - self._snapshots.absent):
            self._store_found(listing, links, copies, began_ns, occasion)

    def _doubt_what_came_late(self) -> None:
        """Judge again what was stored after the program was killed, before that was noticed.

        Nobody had these files open any more, so they seemed to be complete.
        """
        late = self.program.kill is not None and self._seen_ns >= self.program.kill.at_ns
        if not self.program.over or not late or self._earlier is None:
            return
        again = {entry.path for entry in set(self._files) - set(self._earlier)}
        self._files, self._earlier = self._earlier, None
        for path in again:
            self._known.pop(path, None)
            self._stored.pop(path, None)

    def _take(
        self, listing: Listing, changed: Listing, copies: Copies, staging: Path, files: ExitStack
    ) -> bool:
        """Copy or hold what changed; False if a file is too large or cannot be read."""
        check_size(listing, "the checkpoint", self._limit_mb)
        if any(size >= self._sender.too_large for size, _, _ in changed.values()):
            return False
        stored = {entry.path: entry for entry in self._files}
        self._snapshots.see(listing)
        return self._snapshots.take(changed, copies, stored, staging, files)

    def _disk_left(self, staging: Path) -> int:
        return (self._limit_mb << 20) - self._attempt.bytes_used() - weight(staging)

    def _occasion(self) -> SaveOccasion | None:
        """Return why to store a checkpoint now, if anything has changed; None if not at all."""
        commit = self._commits.pending()
        if commit is None and self._commits.begun:
            return None
        new_step = commit is not None and not self._commits.repeats(commit)
        records = commit is not None or self._attempt.grant.rank == 0
        return SaveOccasion(commit, due=new_step or self._following.due, records=records)

    def _own(self) -> Listing:
        look = self._foreign.without(self._saved.look())
        self._links = look.links
        self._notes.left_out(look.refused)
        passing = {path for path in look.files if fleeting(path, look.files)}
        return self._whole({path: s for path, s in look.files.items() if path not in passing})

    def _whole(self, listing: Listing) -> Listing:
        # Other ranks have parts of a step's folder, and rank 0 has what makes it whole.
        if self._attempt.grant.rank > 0:
            return listing
        if self.program.kill is not None:
            return whole(listing, self.program.kill.at_ns)
        return whole(listing, time_ns() + (YOUNG_NS if self.program.over else 0))

    def _changed(self, listing: Listing) -> Listing:
        return {
            path: status
            for path, status in listing.items()
            if path not in self._known
            or self._stored.get(path) != status
            or self._rereads(path)
            or path in self._worn
        }

    def _rereads(self, path: str) -> bool:
        """Tell whether to read a file although its size and times are those of the stored one.

        A write through a mapped file may not change them, and in memory it never does.
        """
        either = any if self._in_memory else all
        return either((self.program.over, path in self._unsure))

    def _go_on(self, _moved: int = 0) -> None:
        self._attempt.while_held()
        if self._limit.over():
            raise Stopped

    def _waits(self, gone: AbstractSet[str]) -> bool:
        """Return whether to wait one more step, because files were being written or moved."""
        halfway = self._snapshots.halfway
        self._missed = self._missed + 1 if self._snapshots.kept or gone or halfway else 0
        most = SAVE_STEPS if halfway else PATIENT_STEPS
        return 0 < self._missed <= most and not self.program.over

    def _store_found(
        self, own: Listing, links: Targets, copies: Copies, began_ns: int, occasion: SaveOccasion
    ) -> None:
        out = self._snapshots.kept
        old = {entry.path: entry for entry in self._files if entry.path in out}
        if self._snapshots.halfway and self.program.over:
            self._notes.halfway(self._snapshots.halfway)
        else:
            self._notes.busy(out, old, killed=self.program.kill is not None)
        unchanged = own.keys() - self._changed(own).keys() - copies.keys() - out
        sound = {path: copy for path, copy in copies.items() if copy.sound and path not in out}
        # A folder may be half without a file that is torn or gone.
        there = {path: own[path] for path in unchanged}
        there |= {path: copy.status for path, copy in sound.items()}
        there |= {path: own.get(path, GONE) for path in old}
        stored = self._whole(there)
        same = unchanged & stored.keys()
        sound = {path: copy for path, copy in sound.items() if path in stored}
        kept = [self._known[path] for path in same]
        kept += [entry for path, entry in old.items() if path in stored]
        kept += self._sent(sound)
        before = {entry.path: entry.target for entry in self._files if entry.target}
        linked = links_with(links, own, {entry.path for entry in kept}, before)
        kept += [Entry.link(path, target) for path, target in linked.items()]
        files = tuple(sorted(kept, key=lambda entry: entry.path))
        if occasion.due or (occasion.records and files and files != self._newest):
            self._store_manifest(Manifest(files), occasion.commit)
        complete = {path: c.status for path, c in sound.items() if c.size == c.status[0]}
        self._stored = {path: own[path] for path in same} | complete
        self._stored_links = links
        self._unsure = (self._unsure & same) | {p for p, copy in sound.items() if copy.written}
        self._known = {
            entry.path: entry
            for entry in files
            if entry.path in self._stored and self._stored[entry.path][1] < began_ns - FRESH_NS
        }

    def _store_manifest(self, manifest: Manifest, commit: Commit | None) -> None:
        # A number is used once: a row whose answer was lost must keep describing its object.
        number, self._number = self._number, self._number + 1
        self._attempt.cursors.keep(checkpoint_number=self._number)
        key = self._attempt.keys.checkpoint_manifest(number)
        self._store.put(key, manifest.dumped())
        row = CheckpointRecord(
            number,
            key,
            manifest.count,
            manifest.size,
            follows=self._following.number,
            step=None if commit is None else commit.step,
            killed=self.program.over and self.cut_short,
        )
        with self._limit.storing_row():
            held = self._gateway.record(self._attempt.fence, row)
        if not held:
            self._attempt.lose()
            return
        # What it referred to may be gone.
        keeps = self._attempt.grant.spec.get("keep_checkpoints", 0) != 1
        self._earlier, self._seen_ns = (self._newest if keeps else None), self._looked_ns
        self._remember(manifest.files)
        self._notes.stored()
        self._following.note_stored()
        if commit is not None:
            self._commits.note_stored(commit)

    def _remember(self, files: tuple[Entry, ...]) -> None:
        self._files = self._newest = files
        self._sender.remember(files)

    def _sent(self, copies: Copies) -> list[Entry]:
        """Store the content of files."""
        key = partial(self._attempt.keys.checkpoint_file, self._number)
        try:
            entries = self._sender.store(copies, self._files, key)
        finally:
            changed = {path for path, copy in copies.items() if copy.changed}
            self._snapshots.rewritten |= changed
        if changed:
            raise FileChanged(f"{min(changed)!r} was rewritten while it was stored")
        return entries

    def _may_pack(self) -> bool:
        newest = self._gateway.newest_checkpoints(self._attempt.fence)
        return newest is not None and newest.get("packs", False)

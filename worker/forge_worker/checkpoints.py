"""The checkpoint sync: the job's checkpoint folder to the store while it runs, and back."""

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

from forge_schema.records import Checkpoint
from forge_schema.states import Reason

from forge_worker.attempt import Attempt, Stop, Stopped
from forge_worker.below import Listing, listing, opened
from forge_worker.gateway import Gateway
from forge_worker.loop import Loop
from forge_worker.manifest import CheckpointUnsound, Entry, Manifest, sha256
from forge_worker.objects import Objects
from forge_worker.staging import DiskFull, check_size, copy

TRIES = 3


class CheckpointSync(Loop):
    """Stores the folder whenever it changed and stood still while it was read.

    Files that have not changed since the last checkpoint, this attempt's or an earlier one's, do
    not travel again. A job that replaces its files by renaming is never caught half-way; one that
    writes in place may be, between two writes.
    """

    name = "checkpoints"

    def __init__(self, attempt: Attempt, store: Objects, gateway: Gateway, limit_mb: int) -> None:
        super().__init__(float(attempt.grant.spec["checkpoint_interval_s"]))
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._limit_mb = limit_mb
        self._folder = attempt.folders.checkpoint
        self._number = attempt.places["checkpoint_number"]
        self._stored: Listing = {}
        self._keys: dict[str, str] = {}
        self._unreadable: set[str] = set()
        self._refused = False
        # What the last one took, in seconds: a notice must leave as much.
        self.took_s = 0.0

    def restore(self) -> bool:
        """Put the job's newest complete checkpoint into the folder; False when there is none.

        Raises:
            CheckpointUnsound: what is stored is not what was stored.
            StoreError: the store does not have it, or does not answer.
            Stopped: the attempt must stop.
        """
        row = self._gateway.latest_checkpoint(self._attempt.fence.job_id)
        if row is None:
            return False
        job_id = self._attempt.fence.job_id
        manifest = Manifest.loaded(self._store.get(row["key"]), job_id=job_id)
        for entry in manifest.files:
            self._fetch(entry)
        self._keys = {entry.sha256: entry.key for entry in manifest.files}
        self._stored = listing(self._folder)
        return True

    def recall(self) -> None:
        """Go on after an earlier agent: what is stored of the job need not travel again."""
        row = self._gateway.latest_checkpoint(self._attempt.fence.job_id)
        if row is not None:
            job_id = self._attempt.fence.job_id
            manifest = Manifest.loaded(self._store.get(row["key"]), job_id=job_id)
            self._keys = {entry.sha256: entry.key for entry in manifest.files}

    def _fetch(self, entry: Entry) -> None:
        self._attempt.while_wanted()
        path = self._folder / entry.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise CheckpointUnsound(f"{entry.path!r} lies below a file") from error
        self._store.get_file(entry.key, path, progress=self._attempt.while_wanted)
        if sha256(path) != entry.sha256:
            raise CheckpointUnsound(f"the stored file {entry.path} is damaged")

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
        before = listing(self._folder)
        if self._attempt.lost or not before or before == self._stored:
            return True
        check_size(before, "the checkpoint", self._limit_mb)
        staging = self._attempt.folders.staging / "checkpoint"
        shutil.rmtree(staging, ignore_errors=True)
        copies = self._copies(staging, before)
        still = listing(self._folder) == before
        if still and copies is not None:
            self._store_copies(copies)
            self._stored = before
        shutil.rmtree(staging, ignore_errors=True)
        return still

    def _store_copies(self, copies: dict[str, Path]) -> None:
        entries = tuple(self._entry(path, copy) for path, copy in sorted(copies.items()))
        manifest = Manifest(entries)
        # A number is used once: a row whose answer was lost must go on describing its object.
        number, self._number = self._number, self._number + 1
        self._attempt.places.keep(checkpoint_number=self._number)
        key = self._attempt.keys.checkpoint_manifest(number)
        self._store.put(key, manifest.dumped())
        row = Checkpoint(number, key, len(entries), manifest.size)
        if not self._gateway.add_checkpoint(self._attempt.fence, row):
            self._attempt.lose()
            return
        self._keys = {entry.sha256: entry.key for entry in entries}

    def _entry(self, path: str, copy: Path) -> Entry:
        digest = sha256(copy)
        if digest not in self._keys:
            key = self._attempt.keys.checkpoint_file(digest)
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

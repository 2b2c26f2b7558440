"""Restore a job's newest sound checkpoint completely, into an empty folder."""

from dataclasses import dataclass

from forge_schema.database.pool import Row
from forge_schema.storage import ObjectMissing
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Manifest

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.safe_files import remove_tree
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects
from forge_worker.transfers.fetching import Fetcher


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored checkpoint; `own` is False if it is another job's, from which this one starts."""

    files: tuple[Entry, ...]
    own: bool


class Restore:
    """Restores checkpoints, each into an empty folder; a retry fetches what is still missing."""

    def __init__(self, attempt: Attempt, store: Objects, gateway: Gateway) -> None:
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._folder = attempt.folders.checkpoint
        self._damaged: set[str] = set()
        # The manifest that is being restored.
        self._begun: str | None = None
        self._fetcher = self._new_fetcher()

    def run(self) -> Restored | None:
        """Fill the folder before the job starts; return None if there is no checkpoint.

        A damaged checkpoint of the job itself is skipped, and named in its log.

        Raises:
            CheckpointUnsound: the checkpoint to start from is damaged.
            CheckpointUnknown: the checkpoint to start from no longer exists.
            StoreError: the store does not answer.
            Stopped: the attempt must stop.
        """
        job_id = self._attempt.fence.job_id
        rows = self._gateway.restorable(job_id)
        for row in rows:
            own = row["job_id"] == job_id
            files = self._files(row) if own else self._fetched(row)
            if files is not None:
                return Restored(files, own)
        self._empty()
        if rows:
            self._attempt.note("no checkpoint is complete: the job starts from the beginning")
        return None

    def newest(self) -> tuple[tuple[Entry, ...], int | None]:
        """Return the files of the job's own newest checkpoint without fetching them.

        Its number too, if this attempt stored it. Raises as `run`.
        """
        job_id = self._attempt.fence.job_id
        rows = self._gateway.restorable(job_id)
        own = [row for row in rows if row["job_id"] == job_id]
        if not own:
            return (), None
        mine = own[0]["key"].startswith(self._attempt.keys.prefix)
        return self._manifest(own[0]).files, own[0]["number"] if mine else None

    def _files(self, row: Row) -> tuple[Entry, ...] | None:
        if row["key"] in self._damaged:
            return None
        try:
            return self._fetched(row)
        except CheckpointUnsound as error:
            self._damaged.add(row["key"])
            name = f"{row['attempt']}.{row['number']}"
            self._attempt.note(f"the checkpoint {name} was skipped: {error.message}")
            return None

    def _fetched(self, row: Row) -> tuple[Entry, ...]:
        try:
            files = self._manifest(row).files
        except ObjectMissing as error:
            raise CheckpointUnsound(error.message) from error
        if self._begun != row["key"]:
            self._empty()
            self._begun, self._fetcher = row["key"], self._new_fetcher()
        self._fetcher.fetch(files)
        return files

    def _manifest(self, row: Row) -> Manifest:
        return Manifest.loaded(self._store.get(row["key"]), job_id=row["job_id"])

    def _new_fetcher(self) -> Fetcher:
        return Fetcher(self._store, self._folder, self._attempt.while_wanted)

    def _empty(self) -> None:
        remove_tree(self._folder)
        self._folder.mkdir()

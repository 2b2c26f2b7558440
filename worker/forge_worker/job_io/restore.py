"""Restore a job's newest sound checkpoint completely, into an empty folder."""

import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from forge_schema.database.pool import Row
from forge_schema.model.attempt_records import BeginsWith
from forge_schema.model.quantities import size_text
from forge_schema.model.stored import checkpoint_name, passed_over_text
from forge_schema.storage import ObjectMissing, Objects
from forge_schema.storage.manifest import CheckpointUnsound, Entry, Manifest, joined

from forge_worker.attempt import LiveAttempt
from forge_worker.files.formats.folders import unfinished
from forge_worker.files.safe_files import Listing, entered, remove_tree
from forge_worker.files.saved_files import FilesSeen, Targets
from forge_worker.queue.gateway import Gateway
from forge_worker.transfers.fetching import Fetcher, StoredParts

NAMED = 3

Part = tuple[int, Entry]
"""A file of a checkpoint, and the rank that stored it."""


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """A restored checkpoint: the files that this rank stores from now on.

    `own` is False if it is another job's, from which this one starts. `others` are the files of
    other ranks.
    """

    files: tuple[Entry, ...]
    own: bool
    others: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The newest checkpoint that an earlier agent knew.

    If this rank has stored it in this attempt, it has a `number`, and what it `follows`.
    """

    files: tuple[Entry, ...] = ()
    number: int | None = None
    follows: int | None = None
    step: int | None = None


class ForeignFiles:
    """Files that are as they were before the job began, and not this rank's to store.

    They were restored for other ranks, or are the project's own. Their statuses, and what the links
    say, are kept for a later agent.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: Listing = {}
        self._links: Targets = {}
        if place.exists():
            kept = json.loads(place.read_text(encoding="utf-8"))
            files, self._links = kept["files"], kept["links"]
            self._files = {path: (size, at, inode) for path, (size, at, inode) in files.items()}

    def keep(self, look: FilesSeen) -> None:
        """Record these, and forget all others."""
        self._files, self._links = look.files, look.links
        if look.files or look.links or self._place.exists():
            kept = json.dumps({"files": look.files, "links": look.links})
            self._place.write_text(kept, encoding="utf-8")

    def without(self, look: FilesSeen) -> FilesSeen:
        """Return what is this rank's."""
        files = {path: s for path, s in look.files.items() if self._files.get(path) != s}
        links = {path: to for path, to in look.links.items() if self._links.get(path) != to}
        return FilesSeen(files, links, look.refused)


class Restore:
    """Restores checkpoints, each into an empty folder; a retry fetches what is still missing.

    A checkpoint of several ranks is restored with the files of all of them.
    """

    def __init__(self, attempt: LiveAttempt, store: Objects, gateway: Gateway) -> None:
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._folder = attempt.folders.checkpoint
        self._damaged: set[str] = set()
        # The manifests whose leftovers were named in the log.
        self._noted: set[str] = set()
        # The manifest that is being restored, and what fetches its files.
        self._begun: tuple[str, Fetcher] | None = None

    def run(self) -> RestoredCheckpoint | None:
        """Fill the folder before the job starts; return None if there is no checkpoint.

        A damaged checkpoint of the job itself is skipped, and named in its log.

        Raises:
            CheckpointUnsound: the checkpoint to start from is damaged.
            CheckpointUnknown: the checkpoint to start from no longer exists.
            StoreError: the store does not answer.
            Stopped: the attempt must stop.
        """
        job_id = self._attempt.fence.job_id
        rows = self._gateway.restorable(job_id) if self._attempt.grant.resumes else []
        passed_over = [row for row in rows if row.get("passed_over") is not None]
        for row in rows:
            if row in passed_over:
                continue
            own = row["job_id"] == job_id
            parts = self._sound(row) if own else self._fetched(row)
            if parts is not None:
                self._begin(row, passed_over, own=own)
                mine = self._own(parts)
                return RestoredCheckpoint(
                    mine, own, tuple({entry for _, entry in parts}.difference(mine))
                )
        self._empty()
        if len(rows) > len(passed_over):
            self._attempt.note("no checkpoint is complete: the job starts from the beginning")
        elif text := passed_over_text(passed_over):
            self._attempt.note(f"the job starts from the beginning: {text}")
        return None

    def recalled(self) -> Recalled:
        """Return the newest checkpoint that this attempt has stored or restored.

        Raises as `run`.
        """
        job_id = self._attempt.fence.job_id
        newest = self._gateway.newest_checkpoints(self._attempt.fence)
        if newest is not None and newest["key"] is not None:
            files = self._manifest(newest["key"], job_id)
            return Recalled(files, newest["number"], newest["follows"], newest["step"])
        rows = self._gateway.restorable(job_id)
        own = [row for row in rows if row["job_id"] == job_id and row.get("passed_over") is None]
        if not own:
            return Recalled()
        return Recalled(self._own(self._parts(own[0])))

    @contextmanager
    def begun_anew_after_failure(self) -> Iterator[None]:
        """Have the next try fetch everything, if the block fails: its files may be elsewhere."""
        try:
            yield
        except BaseException:
            self._begun = None
            raise

    def _begin(self, row: Row, passed_over: list[Row], *, own: bool) -> None:
        """Record what the attempt begins with, and say so if it is not the newest."""
        if own:
            self._gateway.record(self._attempt.fence, BeginsWith(row["attempt"], row["number"]))
        newer = [passed for passed in passed_over if not own or _place(passed) > _place(row)]
        if text := passed_over_text(newer):
            name = checkpoint_name(*_place(row))
            of = "" if own else f" of job {row['job_id']}"
            self._attempt.note(f"the job starts from checkpoint {name}{of}: {text}")

    def _sound(self, row: Row) -> list[Part] | None:
        if row["key"] in self._damaged:
            return None
        try:
            return self._fetched(row)
        except CheckpointUnsound as error:
            self._damaged.add(row["key"])
            name = checkpoint_name(*_place(row))
            self._attempt.note(f"the checkpoint {name} was skipped: {error.message}")
            return None

    def _fetched(self, row: Row) -> list[Part]:
        try:
            parts = self._without_leftovers(self._parts(row), row)
        except ObjectMissing as error:
            raise CheckpointUnsound(error.message) from error
        if self._begun is None or self._begun[0] != row["key"]:
            self._empty()
            stored = StoredParts(self._store)
            fetcher = Fetcher(stored, self._folder, self._attempt.while_wanted)
            self._begun = row["key"], fetcher
        self._begun[1].fetch(entry for _, entry in parts)
        for _, entry in parts:
            if entry.target:
                self._link(entry)
        return parts

    def _link(self, entry: Entry) -> None:
        """Make a link, after all files: none is ever written through it."""
        *above, last = PurePosixPath(entry.path).parts
        self._folder.joinpath(*above).mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), entered(self._folder, tuple(above)) as place:
            os.symlink(entry.target, last, dir_fd=place)

    def _without_leftovers(self, parts: list[Part], row: Row) -> list[Part]:
        """Leave out what interrupted saves left, once an attempt has not touched it."""
        rest = unfinished((entry for _, entry in parts), row["attempt"])
        if row["key"] not in self._noted:
            self._noted.add(row["key"])
            size = sum(entry.size for _, entry in parts if entry.path in rest.old)
            if rest.old:
                words = f"not restored: {_named(rest.old)}, {size_text(size)}, which interrupted"
                self._attempt.note(f"{words} saves left, and the attempt before did not touch")
            if rest.new:
                words = f"{_named(rest.new)} may be what interrupted saves left: not restored"
                self._attempt.note(f"{words} again if nothing changes them")
        return [(rank, entry) for rank, entry in parts if entry.path not in rest.old]

    def _parts(self, row: Row) -> list[Part]:
        companions = row["companions"]
        keys = {0: row["key"], **{companion["rank"]: companion["key"] for companion in companions}}
        if companions:
            self._store.expect(gets=list(keys.values()))
        files = {rank: self._manifest(key, row["job_id"]) for rank, key in keys.items()}
        return joined(files, self._attempt.grant.rank)

    def _own(self, parts: Iterable[Part]) -> tuple[Entry, ...]:
        """Return the files that this rank stores from now on.

        Those of ranks that the new run does not have are rank 0's.
        """
        rank, nodes = self._attempt.grant.rank, self._attempt.grant.nodes
        files = (entry for by, entry in parts if rank == (by if by < nodes else 0))
        return tuple(sorted(files, key=lambda entry: entry.path))

    def _manifest(self, key: str, job_id: int) -> tuple[Entry, ...]:
        return Manifest.loaded(self._store.get(key), job_id=job_id).files

    def _empty(self) -> None:
        with suppress(OSError), entered(self._folder, ()) as place:
            if not os.listdir(place):  # noqa: PTH208  a descriptor has no pathlib
                return
        remove_tree(self._folder)
        self._folder.mkdir()


def _place(row: Row) -> tuple[int, int]:
    return row["attempt"], row["number"]


def _named(paths: Collection[str]) -> str:
    names = ", ".join(repr(path) for path in sorted(paths)[:NAMED])
    return f"{names} and {len(paths) - NAMED} more" if len(paths) > NAMED else names

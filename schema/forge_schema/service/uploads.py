"""What a caller has uploaded: whether it is stored and sound, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from forge_schema.model.bundles import list_digest
from forge_schema.model.states import Role
from forge_schema.model.stored import Segment, SegmentList
from forge_schema.queue.inputs import Uploads, named, not_uploaded
from forge_schema.service.caller import Caller
from forge_schema.storage import Store, keys

if TYPE_CHECKING:
    from forge_schema.database.pool import Database
    from forge_schema.model.spec import JobSpec

# Each is a request to the store, and a batch rarely names more than two objects.
MOST_LOOKS = 100
# How many of a bundle's segments are looked for at once.
LOOKS_AT_ONCE = 8


class StoredUploads:
    """The bundles and images of a caller that are in the store.

    Args:
        caller: who acts.
        store: opens the store.
    """

    def __init__(self, caller: Caller, database: Database, store: Callable[[], Store]) -> None:
        self.caller = caller
        self._database = database
        self._open_store = store
        self._uploads = Uploads(database)

    def is_stored(self, key: str, digest: str, *, size: int) -> bool:
        """Tell whether a bundle or an image of this size is stored, and the caller may run it.

        One that a worker found damaged is not, until it is uploaded again. No report deletes
        anything: a wrong one costs an upload of the same bytes.
        """
        self.caller.require(Role.SUBMITTER)
        if self._open_store().size(key) != size or not self._is_newer(key, self._damaged(digest)):
            return False
        return self.caller.admin or self._has_uploaded(self.caller.owner, key, digest)

    def missing_segments(self, bundle: SegmentList) -> list[Segment]:
        """Return the segments that the caller must upload before the bundle can be stored.

        If there are none, the bundle is stored by the end of the call.
        """
        self.caller.require(Role.SUBMITTER)
        segments = {segment.sha256: segment for segment in bundle.segments}
        listed = bundle.dumped()
        digest = list_digest(listed)
        damaged = self._damaged(digest)
        with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="segments") as threads:
            usable = self._usable(segments.values(), damaged, threads)
        if missing := [segment for segment in segments.values() if segment.sha256 not in usable]:
            return missing
        if not self.is_stored(keys.bundle(digest), digest, size=len(listed)):
            self._open_store().put(keys.bundle(digest), listed)
            self._uploads.add(self.caller.owner, digest)
        return []

    def look_for(self, jobs: Iterable[JobSpec]) -> None:
        """Look for what jobs need that the store has, but nobody has recorded yet."""
        bundles = {(job.owner, job.bundle_digest, keys.bundle) for job in jobs}
        diffs = {(job.owner, job.git.diff, keys.bundle) for job in jobs if job.git}
        images = {(job.owner, job.image_tar, keys.image) for job in jobs}
        for owner, sha256, key in islice(bundles | diffs | images, MOST_LOOKS):
            if sha256:
                self._has_uploaded(owner, key(sha256), sha256)

    def share(self, job: JobSpec) -> None:
        """Make sure that a job's owner has what it names, whoever keeps the job.

        Raises:
            NotUploaded: the owner has not.
        """
        if self.caller.admin:
            for sha256 in named(job):
                self._uploads.add(job.owner, sha256)
        elif self._uploads.missing(job.owner, named(job)):
            self.look_for([job])
            if self._uploads.missing(job.owner, named(job)):
                raise not_uploaded(job)

    def _damaged(self, digest: str) -> datetime | None:
        """Return when a worker last found an object, or a segment of it, damaged."""
        row = self._database.row("damaged_at", again=True, sha256=digest)
        at: datetime | None = row["at"] if row else None
        return at

    def _is_newer(self, key: str, damaged: datetime | None) -> bool:
        """Tell whether an object was written after it was found damaged."""
        if damaged is None:
            return True
        written = self._open_store().modified(key)
        return written is not None and written > damaged

    def _usable(
        self, segments: Collection[Segment], damaged: datetime | None, threads: ThreadPoolExecutor
    ) -> set[str]:
        """Return which segments are stored and the caller's, by their SHA-256.

        If a worker found one damaged, nobody knows which: all that are older are sent again.
        """
        store = self._open_store()

        def is_whole(each: Segment) -> bool:
            key = keys.segment(each.sha256)
            return store.size(key) == each.bytes and self._is_newer(key, damaged)

        whole = threads.map(is_whole, segments)
        there = {segment.sha256 for segment, sound in zip(segments, whole, strict=True) if sound}
        if self.caller.admin:
            return there
        unknown = sorted(self._uploads.missing(self.caller.owner, there))
        uploaders = threads.map(lambda sha256: store.uploader(keys.segment(sha256)), unknown)
        for sha256, uploader in zip(unknown, uploaders, strict=True):
            if uploader is not None:
                self._uploads.add(uploader, sha256)
            if uploader != self.caller.owner:
                there.remove(sha256)
        return there

    def _has_uploaded(self, owner: str, key: str, sha256: str) -> bool:
        if not self._uploads.missing(owner, [sha256]):
            return True
        # Uploads to S3 do not pass through the server: the object itself names the uploader.
        uploader = self._open_store().uploader(key)
        if uploader is not None:
            self._uploads.add(uploader, sha256)
        return uploader == owner

"""Thin out a job's checkpoints: surplus rows first, then objects without a row."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from time import monotonic
from typing import Protocol

import structlog

from forge_schema.database.pool import Database, Row
from forge_schema.model.lease import Fence, fence_params
from forge_schema.storage import ObjectMissing, ObjectTooLarge, StoredObject
from forge_schema.storage.keys import AttemptKeys
from forge_schema.storage.manifest import CheckpointUnsound, Manifest
from forge_schema.storage.store import small

# Maximum number of deletions per call, and seconds to search and to delete.
MOST = 500
# The bytes of a manifest. That of a million files has more, and nothing of its job is thinned.
MOST_MANIFEST = 64 << 20
LOOK_S = 5.0
DELETE_S = 5.0
# How many checkpoints of each rank may wait for the other ranks' parts. A rank that is further
# behind than that does not catch up.
PENDING = 20
# The names that a worker writes.
PLACE = re.compile(
    r"jobs/[^/]+/(?P<attempt>[0-9]+)-(?P<token>[0-9]+)[^/]*/checkpoints/"
    r"((?P<manifest>[0-9]{6})\.json|files/(?P<file>[0-9]{6})-[0-9a-f]{64})"
)
GoOn = Callable[[], bool]

log = structlog.get_logger(__name__)


class Thinnable(Protocol):
    """The part of a store that thinning needs."""

    def get(self, key: str) -> bytes: ...
    def size(self, key: str) -> int | None: ...
    def list(self, prefix: str) -> Iterator[StoredObject]: ...
    def delete(self, key: str) -> None: ...


class Thinning:
    """Thins out checkpoints on behalf of a lease's holder. Idempotent.

    Rows are deleted first, in one statement. Objects left behind by a crash after that, or between
    an upload and its row, are found by a later call. Names are never reused, and nothing newer than
    the newest row of its rank is touched, so a late call cannot harm what the job or its next
    attempt stores meanwhile. Unknown objects stay, and so does everything that an unreadable
    manifest may list.
    """

    def __init__(
        self, database: Database, store: Thinnable, clock: Callable[[], float] = monotonic
    ) -> None:
        self._database = database
        self._store = store
        self._clock = clock

    def thin(
        self, fence: Fence, keep: int, *, everywhere: bool = False, go_on: GoOn = lambda: True
    ) -> int:
        """Keep the newest `keep` checkpoints and a few older ones; return how many objects went.

        Deletes for about ten seconds; a later call deletes the rest.

        Args:
            fence: the lease; if it is lost, nothing changes.
            keep: how many of the newest to keep, at least 1.
            everywhere: whether to search the folders of attempts without checkpoints too.
            go_on: whether to continue; called before each object.

        Raises:
            StoreError: the store does not answer; a later call deletes the rest.
        """
        params = fence_params(fence)
        rows = self._database.rows(
            "thin_checkpoints", again=True, keep=keep, pending=PENDING, **params
        )
        if not rows or not (everywhere or any(row["gone"] for row in rows)):
            return 0
        folders = _folders(rows) | (self._ended(fence.job_id) if everywhere else set())
        return self._delete(self._garbage(fence.job_id, rows, folders, go_on), go_on)

    def _ended(self, job_id: int) -> set[str]:
        """Return the folders of all ended attempts."""
        rows = self._database.rows("attempt_marks", again=True, job_id=job_id)
        fences = [(Fence(job_id, row["token"], row["nonce"]), row["attempt"]) for row in rows]
        return {AttemptKeys(job_id, number, fence.mark).checkpoints for fence, number in fences}

    def _garbage(self, job_id: int, rows: list[Row], folders: set[str], go_on: GoOn) -> list[str]:
        going = self._within(LOOK_S, go_on)
        kept = [row for row in rows if not row["gone"]]
        needed = self._needed(job_id, kept, going)
        if needed is None:
            return []
        newest = Newest.of(rows)
        keys = (item.key for folder in sorted(folders) for item in self._store.list(folder))
        seen = takewhile(lambda _: going(), keys)
        # Deleting while a folder is being listed may hide a part of it.
        return list(islice((k for k in seen if newest.covers(k) and k not in needed), MOST))

    def _needed(self, job_id: int, kept: Iterable[Row], going: GoOn) -> set[str] | None:
        """Return the objects that the checkpoints consist of; None if that is unknown."""
        keys = set()
        for row in kept:
            if not going():
                return None
            keys.add(row["key"])
            try:
                manifest = Manifest.loaded(
                    small(self._store, row["key"], MOST_MANIFEST), job_id=job_id
                )
            except ObjectMissing:
                continue  # nobody can restore it, whatever stays
            except (CheckpointUnsound, ObjectTooLarge) as error:
                # Written by a newer version, or misread: the objects that it lists must stay.
                log.warning("nothing_thinned", manifest=row["key"], error=error.message)
                return None
            keys.update(key for entry in manifest.files for key in entry.objects)
        return keys

    def _delete(self, garbage: list[str], go_on: GoOn) -> int:
        going, gone = self._within(DELETE_S, go_on), 0
        for key in garbage:
            if not going():
                break
            self._store.delete(key)
            gone += 1
        return gone

    def _within(self, seconds: float, go_on: GoOn) -> GoOn:
        until = self._clock() + seconds
        return lambda: go_on() and self._clock() < until


def _folders(rows: Iterable[Row]) -> set[str]:
    return {f"{row['key'].rpartition('/')[0]}/" for row in rows}


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest checkpoint of each rank of the last run that stored any.

    The ranks of a run number their checkpoints each on its own, and have a token each.
    """

    attempt: int
    numbers: Mapping[int, int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Newest":
        attempt = max(row["attempt"] for row in rows)
        # Ascending, so that the newest number of a token remains.
        last = sorted((r["token"], r["number"]) for r in rows if r["attempt"] == attempt)
        return cls(attempt, dict(last))

    def covers(self, key: str) -> bool:
        """Tell whether an object was stored for the newest checkpoint of its rank or before."""
        place = PLACE.fullmatch(key)
        if place is None:
            return False
        number = int(place["manifest"] or place["file"])
        newest = self.numbers.get(int(place["token"]), -1)
        attempt = int(place["attempt"])
        return attempt < self.attempt or (attempt == self.attempt and number <= newest)

"""The thinning of a job's checkpoints: the rows that are too many, then what no row leads to."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from forge_schema.database import Database, Row
from forge_schema.lease import Fence, fence_params
from forge_schema.manifest import CheckpointUnsound, Manifest
from forge_schema.storage import ObjectMissing, StoredObject

# How many objects go in one call, so that a request stays short.
MOST = 500
PLACE = re.compile(
    r"jobs/[^/]+/[0-9]+-(?P<token>[0-9]+)[^/]*/checkpoints/(files/)?((?P<number>[0-9]{6})[.-])?[^/]+"
)


class Erasable(Protocol):
    """As much of a store as thinning needs."""

    def get(self, key: str) -> bytes: ...
    def list(self, prefix: str) -> Iterator[StoredObject]: ...
    def delete(self, key: str) -> None: ...


class Thinning:
    """Thins out on behalf of a lease's holder, any number of times.

    Rows go first, by one statement. What a death leaves after that, or between an upload and its
    row, is found by a later call. No name is written twice, and nothing newer than the newest row
    is touched: a call that is late cannot hurt what the job, or its next attempt, stores meanwhile.
    """

    def __init__(self, database: Database, store: Erasable) -> None:
        self._database = database
        self._store = store

    def thin(self, fence: Fence, keep: int, *, everywhere: bool = False) -> int:
        """Keep the newest `keep` checkpoints and a few older ones; return how many objects went.

        Args:
            fence: the lease; one that is lost changes nothing.
            keep: how many of the newest stay, 1 or more.
            everywhere: whether to look for objects of attempts that have no checkpoint left, too.

        Raises:
            StoreError: the store does not answer; what was to go goes another time.
        """
        params = fence_params(fence)
        rows = self._database.rows("thin_checkpoints", again=True, keep=keep, **params)
        if not rows or not (everywhere or any(row["gone"] for row in rows)):
            return 0
        kept = [row for row in rows if not row["gone"]]
        newest = (kept[0]["token"], kept[0]["number"])
        needed = self._needed(fence.job_id, kept)
        roots = [f"jobs/{fence.job_id}/"] if everywhere else _folders(rows)
        garbage = (key for key in self._below(roots) if _older(key, newest) and key not in needed)
        return self._delete(garbage)

    def _needed(self, job_id: int, kept: Iterable[Row]) -> set[str]:
        keys = set()
        for row in kept:
            keys.add(row["key"])
            try:
                manifest = Manifest.loaded(self._store.get(row["key"]), job_id=job_id)
            except (CheckpointUnsound, ObjectMissing):
                continue  # nobody can restore it, whatever stays
            keys |= {entry.key for entry in manifest.files}
        return keys

    def _below(self, roots: Iterable[str]) -> Iterator[str]:
        return (found.key for root in roots for found in self._store.list(root))

    def _delete(self, garbage: Iterator[str]) -> int:
        # Deleting while a folder is being walked may hide a part of it.
        chosen = [key for key, _ in zip(garbage, range(MOST), strict=False)]
        for key in chosen:
            self._store.delete(key)
        return len(chosen)


def _folders(rows: Iterable[Row]) -> list[str]:
    return sorted({f"{row['key'].rpartition('/')[0]}/" for row in rows})


def _older(key: str, newest: tuple[int, int]) -> bool:
    """Tell whether an object was stored for a checkpoint before the newest, or with it."""
    place = PLACE.fullmatch(key)
    # Files without a number are an earlier version's, which stored them before all others.
    return place is not None and (int(place["token"]), int(place["number"] or 0)) <= newest

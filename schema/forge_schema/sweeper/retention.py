"""Retention: removes old jobs with all they stored, and thins out ageing metrics and samples."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from threading import Event
from time import monotonic
from typing import Protocol

import structlog

from forge_schema.database.pool import Database
from forge_schema.model.lease import array
from forge_schema.storage import StoredObject, StoreError, StoreUnreachable
from forge_schema.storage.keys import job_prefix

OF_JOBS, AUDIT = ("attempt_row", "metric", "sample"), ("event",)
# Jobs per transaction, and objects per listing.
JOBS, OBJECTS = 200, 1_000
# A store answers in tens of milliseconds.
THREADS = 8
# Seconds within which a round begins new batches of jobs, and new deletions of objects.
JOBS_S, OBJECTS_S = 5.0, 20.0
LANES, LANES_EVERY_S = 1_000, 3600.0

log = structlog.get_logger(__name__)

MINUTE, TEN_MINUTES = timedelta(minutes=1), timedelta(minutes=10)
STATEMENTS = ("thin:metric", "thin:sample")
# Maximum number of rows one statement deletes, and seconds within which a tick begins new ones,
# so that a backlog does not delay other steps.
ROWS = 10_000
ENOUGH_S = 2.0


class Erasable(Protocol):
    """The part of a store that retention needs."""

    def list(self, prefix: str) -> Iterator[StoredObject]: ...
    def delete(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Removed:
    """What a round removed; `partitions` are months of attempts, metrics, samples and events."""

    jobs: int = 0
    objects: int = 0
    partitions: int = 0
    lanes: int = 0


class Retention:
    """Removes old jobs, and the objects of those that people deleted.

    Idempotent, and safe beside other sweepers.

    The rows of a job go in one transaction, which leaves a tombstone: nobody sees half a job.
    Then its objects are deleted, and the tombstone last. Whoever dies in between is followed up by
    the next round. Attempts, metrics and samples lie in monthly partitions, and a month is dropped
    when none of its jobs is left.

    Args:
        store: the store of the jobs' objects; without one, no jobs and no objects are removed.
        jobs_days: days after its end at which a job leaves; 0 means never.
        audit_months: months after which a month of the audit trail is dropped; 0 means never.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        actor: str,
        store: Erasable | None = None,
        jobs_days: int = 0,
        audit_months: int = 0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._actor = actor
        self._store = store
        self._jobs_days = jobs_days
        self._audit_months = audit_months
        self._clock = clock
        self._lanes_at = -math.inf
        self._ending = Event()

    def run(self) -> Removed:
        """Do one round, for about half a minute at most; the next one continues.

        Raises:
            DatabaseUnreachable, StoreError: one of the two does not answer.
        """
        audit = self._drop(AUDIT, months=self._audit_months) if self._audit_months else 0
        if self._store is None:
            return Removed(partitions=audit)
        if not self._jobs_days:
            # Of jobs that people deleted.
            return Removed(partitions=audit, objects=self.delete_objects(self._store))
        return Removed(
            jobs=self.remove_jobs(),
            partitions=audit + self._drop(OF_JOBS, days=self._jobs_days),
            lanes=self._remove_lanes(),
            objects=self.delete_objects(self._store),
        )

    def end(self) -> None:
        """End the round after its current statement or object, and any later one too."""
        self._ending.set()

    def remove_jobs(self) -> int:
        """Remove the rows of old jobs, and return how many jobs."""
        going, after, removed = self._within(JOBS_S), 0, 0
        while going():
            row = self._database.row(
                "remove_jobs",
                again=True,
                after=after,
                days=self._jobs_days,
                count=JOBS,
                actor=self._actor,
            )
            assert row is not None  # noqa: S101 - a function with OUT parameters returns one row
            removed += row["removed"]
            if row["reached"] is None:
                break
            after = row["reached"]
        return removed

    def delete_objects(self, store: Erasable) -> int:
        """Delete the objects of removed jobs, and return how many.

        A tombstone goes when nothing is listed any more. Bundles and images stay: others may name
        them too.
        """
        going, deleted, after = self._within(OBJECTS_S), 0, 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="retention") as threads:
            find = partial(self._database.rows, "tombstones", again=True, count=JOBS)
            while going() and (rows := find(after=after)):
                ids = [row["job_id"] for row in rows]
                emptied = list(threads.map(partial(_emptied, store, going), ids))
                deleted += sum(count for count, _ in emptied)
                empty = [job_id for job_id, (_, done) in zip(ids, emptied, strict=True) if done]
                self._database.rows("delete_tombstones", again=True, job_ids=array(empty))
                after = ids[-1]
        return deleted

    def _within(self, seconds: float) -> Callable[[], bool]:
        until = self._clock() + seconds
        return lambda: self._clock() < until and not self._ending.is_set()

    def _drop(self, tables: tuple[str, ...], *, months: int = 0, days: int = 0) -> int:
        (row,) = self._database.rows(
            "drop_partitions", again=True, tables=list(tables), months=months, days=days
        )
        dropped: int = row["dropped"]
        return dropped

    def _remove_lanes(self) -> int:
        if self._clock() < self._lanes_at:
            return 0
        self._lanes_at = self._clock() + LANES_EVERY_S
        (row,) = self._database.rows("remove_lanes", again=True, count=LANES)
        removed: int = row["removed"]
        return removed


def _emptied(store: Erasable, going: Callable[[], bool], job_id: int) -> tuple[int, bool]:
    """Delete a job's objects; return how many, and whether none is left."""
    deleted = 0
    try:
        # Deleting while a folder is being listed may hide a part of it.
        while keys := [item.key for item in islice(store.list(job_prefix(job_id)), OBJECTS)]:
            for key in keys:
                if not going():
                    return deleted, False
                store.delete(key)
                deleted += 1
    except StoreUnreachable:
        raise
    except StoreError as error:
        # One object that cannot be deleted must not keep those of other jobs.
        log.warning("objects_left", job_id=job_id, error=str(error))
        return deleted, False
    return deleted, True


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages at which metric lines and samples are thinned out; 0 means never.

    Past the age `minute`, one row per minute stays; past `ten_minutes`, one per ten minutes, by the
    time it was stored. The first and the last row of each attempt and rank stay too.
    """

    minute: timedelta = timedelta(days=1)
    ten_minutes: timedelta = timedelta(days=8)


class Ageing:
    """Thins out old rows. Idempotent, and safe beside other sweepers: only one works.

    It touches only rows that are no longer written.
    """

    def __init__(
        self, database: Database, ages: Ages | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._database = database
        self._ages = ages or Ages()
        self._clock = clock

    def thin(self) -> int:
        """Thin out for a limited time and return the number of deleted rows."""
        until = self._clock() + ENOUGH_S
        widths = ((MINUTE, self._ages.minute), (TEN_MINUTES, self._ages.ten_minutes))
        return sum(
            self._thin(name, width, age, until)
            for width, age in widths
            if age
            for name in STATEMENTS
        )

    def _thin(self, name: str, width: timedelta, age: timedelta, until: float) -> int:
        gone = 0
        while self._clock() < until:
            row = self._database.row(
                name, again=True, width_s=int(width.total_seconds()), age=age, count=ROWS
            )
            if row is None:
                break
            gone += row["gone"]
        return gone

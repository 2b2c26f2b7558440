"""The lanes that a worker can serve, remembered between claims."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from time import monotonic

from forge_schema.database.pool import Database, DatabaseUnreachable, Row
from forge_schema.model.lease import Grant, array
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import (
    FIRST,
    LAST,
    SHOWN,
    Edition,
    Lane,
    Range,
    fitting,
    needed,
    raise_watermark,
)
from forge_schema.queue.reservation import PATIENCE_S, Backfill, Reservation, drafted

# A worker spends at most a twentieth of its time below the watermarks, but for jobs of its own.
SPARING = 20
# How many of many lanes the first look for one job sees, unless short jobs may pass others there.
FIRST_LOOK = 4
# Up to how many lanes in all are read whether or not they have jobs.
FEW = 256
# Up to how many lanes a look at those with jobs leaps over the others.
LEAPT = 4096
# A worker that lost a GPU, or got it back, registers again, maybe with another server.
SERVES_S = 60.0
# For how many kinds of workers, by the shapes that they cannot serve, lanes are read apart.
KINDS = 4


class LaneBook:
    """Reads the lanes, once for all workers of a process that ask for them at the same time.

    Those that cannot serve the same shapes share an edition, and so do all others if there are more
    than `KINDS` of them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reading = Lock()
        # By the shapes that were left out.
        self._editions: dict[frozenset[int], Edition] = {}
        self._failed: tuple[float, DatabaseUnreachable] | None = None

    def edition(
        self, after: float, besides: Collection[int] = (), skipped: frozenset[int] = frozenset()
    ) -> Edition:
        """Return the lanes as read after a moment; those of the shapes `skipped` may be left out.

        Those in `besides` are among them in any case, even without jobs.

        Raises:
            DatabaseUnreachable: the database does not answer, or did not while this call waited.
        """
        if not besides and (newest := self._newest(after, skipped)):
            return newest
        asked_at = monotonic()
        with self._reading:
            if not besides and (newest := self._newest(after, skipped)):
                return newest
            # Each of those who wait would otherwise wait for the time-out of every other.
            if self._failed is not None and self._failed[0] >= asked_at:
                raise self._failed[1]
            return self._read(besides, self._kind(skipped))

    def _newest(self, after: float, skipped: frozenset[int]) -> Edition | None:
        read = self._editions.items()
        able = [one for out, one in read if one.read_at >= after and out <= skipped]
        return max(able, key=lambda one: one.read_at, default=None)

    def _kind(self, skipped: frozenset[int]) -> frozenset[int]:
        """Return what to leave out of a reading, and forget those of workers that ask no more."""
        since = monotonic() - SERVES_S
        kept = {out: one for out, one in self._editions.items() if one.read_at > since}
        self._editions = kept
        return skipped if skipped in kept or len(kept) < KINDS else frozenset()

    def _read(self, besides: Collection[int], skipped: frozenset[int]) -> Edition:
        # Before the look, so that a hint during it asks for another one.
        now = monotonic()
        which = {"few": FEW, "besides": array(list(besides)), "skipped": array(list(skipped))}
        which["leapt"] = LEAPT if skipped else FEW
        try:
            rows = self._database.rows("match", again=True, **which)
        except DatabaseUnreachable as error:
            if error.is_silent:
                self._failed = monotonic(), error
            raise
        edition = Edition(rows, now)
        self._editions = {**self._editions, skipped: edition}
        return edition


class Lanes:
    """The lanes that one worker can serve, read again after `refresh_s` seconds or on a hint.

    A look sees all of them, or of many the first ones that have jobs. A job in one of many lanes
    that had none is seen after a hint or when the lanes are read again. Workers of one process
    share a `book`; of each one only this is kept: which shapes it serves, and how far it emptied
    which lanes. Lanes of shapes that it is known not to serve are not read for it.
    """

    def __init__(
        self,
        database: Database,
        worker_id: int,
        *,
        refresh_s: float = 2.0,
        patience_s: float = PATIENCE_S,
        book: LaneBook | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._backfill = Backfill(database, worker_id, refresh_s=refresh_s, patience_s=patience_s)
        self._database = database
        self._book = book or LaneBook(database)
        self._alone = book is None
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._edition = Edition()
        # By shape: what its jobs need on this worker; None if it cannot serve them.
        self._needs: dict[int, Capacity | None] = {}
        # The shapes whose jobs it leaves to spot machines for a while.
        self._leaves: set[int] = set()
        self._skipped: frozenset[int] = frozenset()
        # The same of gangs, of which this worker may be a part.
        self._gangs: dict[int, Capacity] = {}
        self._asked_at = -math.inf
        self._served: dict[int, Capacity] = {}
        self._watermarks: dict[int, dict[int, int]] = {}
        self._reserves = False
        self._count = 0
        self._emptied: set[int] = set()
        # Another worker may have read them just now.
        self._after = monotonic() if self._alone else -math.inf
        self._forgotten = True
        self._hinted_at = -math.inf
        self._came_back = False
        self._from_below = False
        self._above_until = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether a look that found nothing may have missed something.

        A watermark may hide a job that came back, and a hint may be about a new lane.
        """
        return self._edition.read_at < self._hinted_at or self._above

    @property
    def _above(self) -> bool:
        return not self._from_below and any(self._watermarks.values())

    def doubt(self, since: float | None = None) -> None:
        """If the next look finds nothing at lanes read before, read them again and look once more.

        Args:
            since: when a hint came, on this process's clock; none if it is just now.
        """
        self._hinted_at = max(self._hinted_at, monotonic() if since is None else since)

    def came_back(self, *, own: bool = False) -> None:
        """Have the next look begin below the watermarks, since a job that came back goes first.

        While such looks are too slow to repeat, only for the worker's `own` job: a hint about
        another one reaches all workers.
        """
        if own:
            self._above_until = 0.0
        self._came_back = True

    def forget(self) -> None:
        """Have the next look read the lanes again."""
        self._after = monotonic()
        self._forgotten = True

    def make_sure(self) -> None:
        """Have the next look leave no doubt; others may have read the lanes since the hint."""
        self._after = monotonic() if self._above else self._hinted_at
        self._forgotten = True

    def served(self, lane_ids: Collection[int]) -> list[Lane]:
        """Return those of some lanes that the worker can serve when idle, read now."""
        with self._lock:
            self._read(math.inf, lane_ids)
            lanes = [self._edition.lanes[i] for i in lane_ids if i in self._edition.lanes]
            serves = self._served.keys() | self._gangs.keys()
            return [self._seen(lane) for lane in lanes if lane.shape_id in serves]

    def first(self) -> list[Lane]:
        """Return the lanes whose first jobs come first, of those that the worker serves if idle."""
        with self._lock:
            edition = self._read(max(self._after, monotonic() - self._refresh_s))
            return [self._seen(lane) for lane in edition.first(SHOWN, self._served, ())]

    @property
    def drafted(self) -> int | None:
        """The gang that the worker kept room for when the lanes were read, if any."""
        draft = self._edition.drafts.get(self.worker_id)
        return None if draft is None else draft.job_id

    def leaves(self, lane: Lane) -> bool:
        """Tell whether the worker leaves a lane's jobs to spot machines for a while."""
        return lane.shape_id in self._leaves

    @property
    def many(self) -> bool:
        """Whether a look sees only some of the lanes."""
        return self._count > SHOWN

    def shown(self, free: Capacity, without: Collection[int] = (), *, count: int = 1) -> list[Lane]:
        """Return the lanes to look at for `count` jobs: those of which at least one fits `free`.

        Of many, the first ones that have jobs, other than `without`; the more of those there are,
        the more lanes.
        """
        with self._lock:
            now = monotonic()
            edition = self._read(max(self._after, now - self._refresh_s))
            dear = now <= self._above_until
            self._from_below = self._from_below or (self._came_back and not dear)
            self._came_back = False
            shapes = [shape for shape, needs in self._served.items() if fitting(needs, free) > 0]
            if self.many:
                few = SHOWN if without or self.drafted else FIRST_LOOK
                most = max(few, count, len(without))
                lanes = edition.first(most, shapes, self._emptied.union(without))
            else:
                lanes = [lane for shape in shapes for lane in edition.shapes[shape]]
            return [self._seen(lane) for lane in lanes]

    def saw(
        self, shown: Iterable[Lane], heads: Mapping[str, int], reservation: Reservation
    ) -> None:
        """Remember the `nice` of the first job of each of many lanes; without one, it has none.

        A worker that did not look at all of a lane's jobs keeps that to itself.
        """
        with self._lock:
            for lane in (lane for lane in shown if lane.id in self._edition.lanes):
                nice = heads.get(str(lane.id))
                whole = reservation.lane is None and (self._from_below or not lane.watermarks)
                if nice is not None or whole:
                    self._edition.saw(lane.id, nice)
                else:
                    self._emptied.add(lane.id)

    @property
    def offers(self) -> bool:
        """Whether a gang may have the worker: it keeps no room for a job that it can run alone."""
        return not self._reserves

    def reservation(self, free: Capacity) -> Reservation:
        """Return the reservation for a job or a gang that smaller jobs would otherwise starve."""
        with self._lock:
            if draft := self._draft(free):
                self._reserves = False
                return draft
            reservation = self._backfill.reservation(self._edition, self._served, free)
            self._reserves = reservation.lane is not None
            return reservation

    def _draft(self, free: Capacity) -> Reservation | None:
        draft = self._edition.drafts.get(self.worker_id)
        lane = draft and self._edition.lanes.get(draft.lane_id)
        needs = lane and (self._gangs.get(lane.shape_id) or self._served.get(lane.shape_id))
        if not (draft and lane and needs):
            return None
        short_s = draft.expected_at - monotonic()
        return drafted(lane, needs, draft.nice, free, short_s=short_s)

    def ranges(self, lanes: Iterable[Lane]) -> list[Range]:
        """Return the ranges to look at: above the watermarks, or now and then everything."""
        if self._from_below:
            return [(lane, FIRST, LAST) for lane in lanes]
        return [span for lane in lanes for span in lane.ranges()]

    def advance(self, grants: list[Grant], *, passing: Collection[int] = ()) -> None:
        """End a claim: raise the watermarks of its lanes, and the shares of its owners.

        The grants come best first. The jobs `passing` others leave these below no watermark.
        """
        with self._lock:
            self._from_below = False
            for grant in grants:
                self._edition.claimed(grant.lane_id, grant.job_id)
                if grant.job_id not in passing:
                    marks = self._watermarks.setdefault(grant.lane_id, {})
                    raise_watermark(marks, -grant.priority, grant.job_id)

    def took(self, seconds: float) -> None:
        """Record how long a look took; one below the watermarks may be too slow to repeat soon."""
        if self._from_below and 0 < self._refresh_s < SPARING * seconds:
            self._above_until = monotonic() + SPARING * seconds

    def _read(self, after: float, besides: Collection[int] = ()) -> Edition:
        now = monotonic()
        # Of a server's workers, those that know many shapes ask again for the ones that have jobs.
        asks = self._alone or 0 < len(self._needs) <= FEW
        if asks and now - self._asked_at > SERVES_S:
            # Before the lanes are read, since those of shapes that it cannot serve need not be.
            shapes = None if self._alone else array(sorted(self._needs))
            self._forget_shapes(self._serves(shapes), now)
        edition = self._book.edition(after, besides, self._skipped)
        if edition is not self._edition:
            self._turn_to(edition, monotonic())
        return edition

    def _turn_to(self, edition: Edition, now: float) -> None:
        if now - self._asked_at > SERVES_S:
            self._forget_shapes([], now)
        # It may fail, so nothing of the edition is noted before it.
        if new := edition.shapes.keys() - self._needs.keys():
            self._note(self._serves(array(sorted(new))))
        self._from_below = self._forgotten or now > self._above_until
        self._forgotten = False
        self._edition = edition
        self._emptied = set()
        for lane_id in self._watermarks.keys() - edition.lanes.keys():
            del self._watermarks[lane_id]
        self._served = {}
        if self.worker_id not in edition.asked:
            needs = {shape: self._needs.get(shape) for shape in edition.shapes}
            self._served = {shape: need for shape, need in needs.items() if need is not None}
        self._count = sum(len(edition.shapes[shape]) for shape in self._served)

    def _forget_shapes(self, rows: Sequence[Row], now: float) -> None:
        self._needs, self._gangs, self._leaves = {}, {}, set()
        self._note(rows)
        self._asked_at = now

    def _serves(self, shapes: str | None) -> Sequence[Row]:
        which = {"worker_id": self.worker_id, "shapes": shapes}
        return self._database.rows("serves", again=True, **which)

    def _note(self, rows: Sequence[Row]) -> None:
        needs = {row["id"]: None if row["cpus"] is None else needed(row) for row in rows}
        gangs = {row["id"] for row in rows if row["nodes"] > 1}
        self._needs |= {shape: None if shape in gangs else of for shape, of in needs.items()}
        self._gangs |= {shape: of for shape in gangs if (of := needs[shape]) is not None}
        self._leaves |= {row["id"] for row in rows if row["leaves"]}
        self._skipped = frozenset(shape for shape, of in self._needs.items() if of is None)

    def _seen(self, lane: Lane) -> Lane:
        marks = self._watermarks.get(lane.id, {})
        needs = self._served.get(lane.shape_id) or self._gangs[lane.shape_id]
        return lane.seen(needs, marks)

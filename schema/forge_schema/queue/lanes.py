"""The lanes that a worker can serve, remembered between claims."""

from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from time import monotonic

from forge_schema.database.pool import Database
from forge_schema.model.lease import Grant, array
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import FIRST, LAST, Lane, Order, Range, read
from forge_schema.queue.reservation import PATIENCE_S, Backfill, Reservation

# A worker spends at most a twentieth of its time below the watermarks.
SPARING = 20
# How many lanes a look for one job sees, and up to how many lanes in all are read whether or not
# they have jobs.
SHOWN, FEW = 12, 256


class Lanes:
    """The matched lanes of one worker, read again every `refresh_s` seconds or on a hint.

    A look sees all of them, or of many the first ones that have jobs. A job in one of many lanes
    that had none is seen after a hint or when the lanes are read again.
    """

    def __init__(
        self,
        database: Database,
        worker_id: int,
        *,
        refresh_s: float = 2.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.worker_id = worker_id
        self._backfill = Backfill(database, worker_id, refresh_s=refresh_s, patience_s=patience_s)
        self._database = database
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._lanes: dict[int, Lane] = {}
        self._owned: dict[str, list[Lane]] = {}
        self._kinds: dict[Capacity, Lane] = {}
        self._order = Order(())
        self._read_at = 0.0
        self._forgotten = True
        self._hinted = False
        self._came_back = False
        self._from_below = False
        self._above_until = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether a look that found nothing may have missed something.

        A watermark may hide a job that came back, and a hint may be about a new lane.
        """
        above = not self._from_below and any(lane.watermarks for lane in self._lanes.values())
        return self._hinted or above

    def doubt(self) -> None:
        """If the next look finds nothing, read the lanes again and look once more."""
        self._hinted = True

    def came_back(self) -> None:
        """Have the next look begin below the watermarks, since a job that came back goes first."""
        self._came_back = True

    def forget(self) -> None:
        """Have the next look read the lanes again."""
        self._forgotten = True

    def served(self, lane_ids: Collection[int]) -> list[Lane]:
        """Return those of some lanes that the worker can serve when idle, read now."""
        with self._lock:
            self._read(monotonic(), besides=lane_ids)
            return [self._lanes[i] for i in lane_ids if i in self._lanes]

    @property
    def many(self) -> bool:
        """Whether a look sees only some of the lanes."""
        return len(self._lanes) > SHOWN

    def shown(self, free: Capacity, without: Collection[int] = (), *, count: int = 1) -> list[Lane]:
        """Return the lanes to look at for `count` jobs: those of which at least one fits `free`.

        Of many, the first ones that have jobs, other than `without`; the more of those there are,
        the more lanes.
        """
        with self._lock:
            now = monotonic()
            if self._forgotten or now - self._read_at > self._refresh_s:
                self._read(now)
            dear = now <= self._above_until
            self._from_below = self._from_below or (self._came_back and not dear)
            self._came_back = False
            if self.many:
                return self._order.first(max(SHOWN, count, len(without)), free, without)
            return [lane for lane in self._lanes.values() if lane.fits(free) > 0]

    def saw(self, shown: Iterable[Lane], heads: Mapping[str, int]) -> None:
        """Remember the `nice` of the first job of each of many lanes; without one, it has none."""
        with self._lock:
            # Another thread may have read the lanes anew.
            for lane in (one for one in shown if self._lanes.get(one.id) is one):
                before, lane.nice = lane.nice, heads.get(str(lane.id))
                if lane.nice is not None and (before is None or lane.nice < before):
                    self._order.moved_up(lane)

    def reservation(self, free: Capacity) -> Reservation:
        """Return the backfill reservation for a job that smaller ones would otherwise starve."""
        with self._lock:
            return self._backfill.reservation(self._lanes, self._kinds.values(), free)

    def ranges(self, lanes: Iterable[Lane]) -> list[Range]:
        """Return the ranges to look at: above the watermarks, or now and then everything."""
        if self._from_below:
            return [(lane, FIRST, LAST) for lane in lanes]
        return [one for lane in lanes for one in lane.ranges()]

    def advance(self, grants: list[Grant]) -> None:
        """End a claim: raise the watermarks of its lanes, and the shares of its owners.

        The grants come best first.
        """
        with self._lock:
            self._from_below = False
            for grant in grants:
                self._backfill.forget(grant.job_id)
                lane = self._lanes.get(grant.lane_id)
                if lane is not None:
                    lane.raise_watermark(-grant.priority, grant.job_id)
                    self._charge(lane)

    def _charge(self, claimed: Lane) -> None:
        for lane in self._owned[claimed.owner]:
            lane.share += claimed.step

    def took(self, seconds: float) -> None:
        """Record how long a look took; one below the watermarks may be too slow to repeat soon."""
        if self._from_below and 0 < self._refresh_s < SPARING * seconds:
            self._above_until = monotonic() + SPARING * seconds

    def _read(self, now: float, besides: Collection[int] = ()) -> None:
        self._from_below = self._forgotten or now > self._above_until
        # Before the look, so that a hint during it asks for another one.
        self._forgotten = self._hinted = False
        self._read_at = now
        which = {"worker_id": self.worker_id, "few": FEW, "besides": array(list(besides))}
        rows = self._database.rows("match", again=True, **which)
        before, self._lanes = self._lanes, {row["id"]: read(row) for row in rows}
        for lane_id in before.keys() & self._lanes.keys():
            self._lanes[lane_id].watermarks = before[lane_id].watermarks
        self._owned = {}
        for lane in self._lanes.values():
            self._owned.setdefault(lane.owner, []).append(lane)
        self._kinds = {lane.needs: lane for lane in self._lanes.values()}
        self._order = Order(self._lanes.values())

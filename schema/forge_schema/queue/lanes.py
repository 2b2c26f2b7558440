"""The lanes that a worker can serve, remembered between claims."""

from collections.abc import Iterable
from threading import Lock
from time import monotonic

from forge_schema.database.pool import Database
from forge_schema.model.lease import Grant
from forge_schema.model.machine import Capacity
from forge_schema.queue.lane import FIRST, LAST, Lane, Stretch, read
from forge_schema.queue.reservation import PATIENCE_S, Reserve, Waiting

# Of its time, a worker spends at most one part in so many on looking below the floors.
SPARING = 20


class Lanes:
    """The matched lanes of one worker, read anew every `refresh_s` seconds or when told."""

    def __init__(
        self,
        database: Database,
        worker_id: int,
        *,
        refresh_s: float = 2.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.worker_id = worker_id
        self._waiting = Waiting(database, worker_id, refresh_s=refresh_s, patience_s=patience_s)
        self._database = database
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._lanes: dict[int, Lane] = {}
        self._read_at = 0.0
        self._forgotten = True
        self._hinted = False
        self._came_back = False
        self._from_below = False
        self._above_until = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether a look that found nothing may have missed something.

        A floor may hide a job that came back, and a hint may speak of a new lane.
        """
        above = not self._from_below and any(lane.floors for lane in self._lanes.values())
        return self._hinted or above

    def doubt(self) -> None:
        """Have the next look that finds nothing read the lanes anew, and look again."""
        self._hinted = True

    def came_back(self) -> None:
        """Have the next look begin below the floors: a job that came back goes before the rest."""
        self._came_back = True

    def forget(self) -> None:
        """Have the next look read the lanes anew."""
        self._forgotten = True

    def fitting(self, free: Capacity) -> list[Lane]:
        """Return the lanes of which at least one job fits into what is free."""
        with self._lock:
            now = monotonic()
            if self._forgotten or now - self._read_at > self._refresh_s:
                self._read(now)
            dear = now <= self._above_until
            self._from_below = self._from_below or (self._came_back and not dear)
            self._came_back = False
            return [lane for lane in self._lanes.values() if lane.fits(free) > 0]

    def reserve(self, free: Capacity) -> Reserve:
        """Return what is to be kept for a job that would else wait for ever."""
        with self._lock:
            return self._waiting.reserve(self._lanes.values(), free)

    def stretches(self, lanes: Iterable[Lane]) -> list[Stretch]:
        """Return where to look for jobs: above the floors, or everywhere now and then."""
        if self._from_below:
            return [(lane, FIRST, LAST) for lane in lanes]
        return [stretch for lane in lanes for stretch in lane.stretches()]

    def advance(self, grants: list[Grant]) -> None:
        """End a claim: move the floors of the lanes that it took jobs from, and the owners' shares.

        The grants come best first.
        """
        with self._lock:
            self._from_below = False
            for grant in grants:
                self._waiting.forget(grant.job_id)
                lane = self._lanes.get(grant.lane_id)
                if lane is not None:
                    lane.raise_floor(-grant.priority, grant.job_id)
                    self._charge(lane.owner)

    def _charge(self, owner: str) -> None:
        for lane in self._lanes.values():
            if lane.owner == owner:
                lane.share += 1 / lane.weight

    def took(self, seconds: float) -> None:
        """Learn how long a look took; one that began below the floors may be too dear to repeat."""
        if self._from_below and 0 < self._refresh_s < SPARING * seconds:
            self._above_until = monotonic() + SPARING * seconds

    def _read(self, now: float) -> None:
        self._from_below = self._forgotten or now > self._above_until
        # Before the look: what becomes known during it asks for another one.
        self._forgotten = self._hinted = False
        self._read_at = now
        rows = self._database.rows("match", again=True, worker_id=self.worker_id)
        before, self._lanes = self._lanes, {row["id"]: read(row) for row in rows}
        for lane_id in before.keys() & self._lanes.keys():
            self._lanes[lane_id].floors = before[lane_id].floors

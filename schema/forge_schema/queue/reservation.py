"""Backfill and its reservation: room that a worker keeps for a job smaller ones would starve.

A job may be first by priority, fair share and age while too little CPU, memory, disk or GPUs are
free for it. For a while, smaller jobs backfill the gap. Once its patience ends, a worker reserves
what the job needs as it comes free; then only jobs of a higher priority, and jobs that fit beside
it, go before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from forge_schema.database.pool import Database
from forge_schema.model.lease import array
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import LAST, Lane

# Seconds for which other jobs are backfilled around a job. Each worker that could serve it waits
# one turn longer than the one before, so that a whole fleet does not stand idle for one job.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for a job of this lane and `nice`; without a lane, none."""

    lane: Lane | None = None
    nice: int = LAST

    def jobs(self, lane: Lane, free: Capacity) -> int:
        """Return how many jobs of a lane may be claimed beside the reservation."""
        return self._beside(lane, free) or lane.fits(free)

    def last(self, lane: Lane, free: Capacity) -> int:
        """Return the last `nice` to claim; jobs that need the reserved room must come before it."""
        if self.lane is None or lane.id == self.lane.id or self._beside(lane, free):
            return LAST
        return self.nice - 1

    def _beside(self, lane: Lane, free: Capacity) -> int:
        if self.lane is None or lane.id == self.lane.id:
            return 0
        return max(0, lane.fits(free.without(self.lane.needs)))


@dataclass(frozen=True, slots=True)
class Blocked:
    """A job that is first and does not fit; its patience ends at `until`."""

    lane_id: int
    nice: int
    until: float


class Backfill:
    """The blocked jobs of one worker, read again every `refresh_s` seconds."""

    def __init__(
        self, database: Database, worker_id: int, *, refresh_s: float, patience_s: float
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._refresh_s = refresh_s
        self._patience_s = patience_s
        self._looked_at: dict[str, float] = {}
        self._blocked: dict[int, Blocked] = {}

    def forget(self, job_id: int) -> None:
        """Drop a job that no longer waits."""
        self._blocked.pop(job_id, None)

    def reservation(self, lanes: Iterable[Lane], free: Capacity) -> Reservation:
        """Return a reservation if a blocked job's patience has ended."""
        wanting = {lane.id: lane for lane in lanes if may_come(lane, free)}
        if not self._blocked and all(lane.fits(free) > 0 for lane in wanting.values()):
            return Reservation()
        now = monotonic()
        if now - self._looked_at.get(free.gpu_model, -self._refresh_s) >= self._refresh_s:
            self._looked_at[free.gpu_model] = now
            self._look(wanting, free, now)
        impatient = [
            blocked
            for blocked in self._blocked.values()
            if blocked.lane_id in wanting and blocked.until <= now
        ]
        if not impatient:
            return Reservation()
        chosen = min(impatient, key=lambda blocked: (blocked.nice, blocked.until))
        return Reservation(wanting[chosen.lane_id], chosen.nice)

    def _look(self, wanting: dict[int, Lane], free: Capacity, now: float) -> None:
        heads = self._heads(wanting)
        self._blocked = {
            job_id: blocked
            for job_id, blocked in self._blocked.items()
            if blocked.lane_id not in wanting
            or (blocked.nice, job_id) == heads.get(blocked.lane_id)
        }
        if not heads:
            return
        lane_id = first(heads, wanting)
        nice, job_id = heads[lane_id]
        if job_id not in self._blocked and wanting[lane_id].fits(free) <= 0:
            until = now + self._patience_s * (1 + self._before(lane_id, job_id))
            self._blocked[job_id] = Blocked(lane_id, nice, until)

    def _heads(self, wanting: dict[int, Lane]) -> dict[int, tuple[int, int]]:
        """Return the `(nice, job_id)` of the first job of each lane that may be served now."""
        ids = array(list(wanting))
        within = set(wanting)
        if any(lane.limited for lane in wanting.values()):
            # Without a lock this is a hint, like everything here.
            rows = self._database.rows("lanes_with_room", again=True, lanes=ids)
            within = {row["id"] for row in rows}
        rows = self._database.rows("heads", again=True, lanes=ids)
        return {r["lane_id"]: (r["nice"], r["job_id"]) for r in rows if r["lane_id"] in within}

    def _before(self, lane_id: int, job_id: int) -> int:
        ids = {"worker_id": self._worker_id, "lane_id": lane_id, "job_id": job_id}
        row = self._database.one("workers_before", again=True, **ids)
        return int(row["workers"]) if row else 0


def first(heads: Mapping[int, tuple[int, int]], lanes: Mapping[int, Lane]) -> int:
    """Return the lane whose head, a `(nice, job_id)`, is first by priority, fair share and age."""
    return min(heads, key=lambda i: (heads[i][0], lanes[i].share, heads[i][1]))


def may_come(lane: Lane, free: Capacity) -> bool:
    """Tell whether enough GPUs of this kind may one day be free here for a lane's jobs.

    Of everything else, the worker has enough for each lane that it serves.
    """
    gpus = lane.needs.gpus
    return not gpus or (free.gpus > 0 and gpus <= free.gpus_in_all and lane.suits(free))

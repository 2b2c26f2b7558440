"""The reserve: what a worker keeps for a job that smaller ones would pass by for ever.

A job that comes first by priority, fair share and age, but finds too little free of the CPUs,
memory, disk or GPUs that it needs, is passed by for a while: the others fill the gap. After its
patience, a worker keeps what the job needs as it comes free. Only jobs of a higher priority go
before it then, and what fits beside it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from forge_schema.database.pool import Database
from forge_schema.model.lease import array
from forge_schema.model.machine import Capacity
from forge_schema.queue.lane import LAST, Lane

# For so long a job is passed by, in seconds. Each worker that could serve it waits once more than
# the one before, so that not a whole fleet stands idle for one job.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Reserve:
    """What is kept for a job of a lane and a `nice`; for none, nothing."""

    lane: Lane | None = None
    nice: int = LAST

    def jobs(self, lane: Lane, free: Capacity) -> int:
        """Return how many jobs of a lane that fits may be claimed beside what is kept."""
        return self._beside(lane, free) or lane.fits(free)

    def last(self, lane: Lane, free: Capacity) -> int:
        """Return up to which `nice` they may be: others than the kept one's only above it."""
        if self.lane is None or lane.id == self.lane.id or self._beside(lane, free):
            return LAST
        return self.nice - 1

    def _beside(self, lane: Lane, free: Capacity) -> int:
        if self.lane is None or lane.id == self.lane.id:
            return 0
        return max(0, lane.fits(free.without(self.lane.needs)))


@dataclass(frozen=True, slots=True)
class PassedBy:
    """A job that was first and did not fit; `until` is when its patience ends."""

    lane_id: int
    nice: int
    until: float


class Waiting:
    """The jobs that one worker passed by, looked at anew every `refresh_s` seconds."""

    def __init__(
        self, database: Database, worker_id: int, *, refresh_s: float, patience_s: float
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._refresh_s = refresh_s
        self._patience_s = patience_s
        self._looked_at: dict[str, float] = {}
        self._passed: dict[int, PassedBy] = {}

    def forget(self, job_id: int) -> None:
        """Learn that a job waits no more."""
        self._passed.pop(job_id, None)

    def reserve(self, lanes: Iterable[Lane], free: Capacity) -> Reserve:
        """Return what to keep of what is free, if a job's patience has ended."""
        wanting = {lane.id: lane for lane in lanes if may_come(lane, free)}
        if not self._passed and all(lane.fits(free) > 0 for lane in wanting.values()):
            return Reserve()
        now = monotonic()
        if now - self._looked_at.get(free.gpu_model, -self._refresh_s) >= self._refresh_s:
            self._looked_at[free.gpu_model] = now
            self._look(wanting, free, now)
        impatient = [
            passed
            for passed in self._passed.values()
            if passed.lane_id in wanting and passed.until <= now
        ]
        if not impatient:
            return Reserve()
        chosen = min(impatient, key=lambda passed: (passed.nice, passed.until))
        return Reserve(wanting[chosen.lane_id], chosen.nice)

    def _look(self, wanting: dict[int, Lane], free: Capacity, now: float) -> None:
        heads = self._heads(wanting)
        self._passed = {
            job_id: passed
            for job_id, passed in self._passed.items()
            if passed.lane_id not in wanting or (passed.nice, job_id) == heads.get(passed.lane_id)
        }
        if not heads:
            return
        lane_id = first(heads, wanting)
        nice, job_id = heads[lane_id]
        if job_id not in self._passed and wanting[lane_id].fits(free) <= 0:
            until = now + self._patience_s * (1 + self._before(lane_id, job_id))
            self._passed[job_id] = PassedBy(lane_id, nice, until)

    def _heads(self, wanting: dict[int, Lane]) -> dict[int, tuple[int, int]]:
        """Return the `(nice, job_id)` of the first job of each lane that may be served now."""
        ids = array(list(wanting))
        within = set(wanting)
        if any(lane.limited for lane in wanting.values()):
            # Without a lock this is a hint, as is all that is known here.
            rows = self._database.rows("lanes_within_limits", again=True, lanes=ids)
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
    """Tell whether what a lane's jobs need may one day be free here: of GPUs, of the kind at hand.

    Of all else, the worker has enough for each lane that it serves.
    """
    gpus = lane.needs.gpus
    return not gpus or (free.gpus > 0 and gpus <= free.gpus_in_all and lane.suits(free))

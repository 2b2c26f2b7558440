"""The lanes that a worker can serve, remembered between claims."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from forge_schema.database import Database, Row
from forge_schema.lease import Grant

# `nice` is a smallint.
FIRST = (-32768, 0)
LAST = 32767
# For how many priorities of a lane it is remembered how far they were emptied.
REMEMBERED = 8
# Of its time, a worker spends at most one part in so many on looking below the floors.
SPARING = 20


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a worker has free now; memory and disk in MiB."""

    cpus: float
    memory_mb: int
    disk_mb: int
    gpus: int = 0


@dataclass(slots=True)
class Lane:
    """A lane's needs, its owner's share, and its floors: how far this worker emptied it.

    A share is the owner's running jobs by the owner's weight: the least goes first.

    A floor is the last job claimed of one `nice`, and a hint. It spares the claim the dead rows
    in front, which Postgres cannot remove while any old snapshot lives; what appears below it
    waits for the next refresh.
    """

    id: int
    needs: Capacity
    limited: bool
    owner: str
    weight: float
    share: float
    floors: dict[int, int] = field(default_factory=dict)

    def fits(self, free: Capacity) -> int:
        """Return how many jobs of this lane fit into what is free."""
        pairs = (
            (free.cpus, self.needs.cpus),
            (free.memory_mb, self.needs.memory_mb),
            (free.disk_mb, self.needs.disk_mb),
            (free.gpus, self.needs.gpus),
        )
        # Ten tenths of a CPU are one CPU, which // does not find.
        return min(int(have / need + 1e-9) for have, need in pairs if need)

    def stretches(self) -> Iterator["Stretch"]:
        """Yield the stretches of `ready` above the floors: after what, and up to which `nice`."""
        after = FIRST
        for nice, job_id in sorted(self.floors.items()):
            yield self, after, nice - 1
            after = (nice, job_id)
        yield self, after, LAST

    def raise_floor(self, nice: int, job_id: int) -> None:
        """Remember that this worker emptied the lane so far."""
        self.floors.pop(nice, None)
        self.floors[nice] = job_id
        if len(self.floors) > REMEMBERED:
            del self.floors[next(iter(self.floors))]


# A lane, the `(nice, job_id)` after which to look at it, and the last `nice` to look at.
Stretch = tuple[Lane, tuple[int, int], int]


class Lanes:
    """The matched lanes of one worker, read anew every `refresh_s` seconds or when told."""

    def __init__(self, database: Database, worker_id: int, *, refresh_s: float = 2.0) -> None:
        self.worker_id = worker_id
        self._database = database
        self._refresh_s = refresh_s
        self._lock = Lock()
        self._lanes: dict[int, Lane] = {}
        self._read_at = 0.0
        self._forgotten = True
        self._hinted = False
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

    def forget(self) -> None:
        """Have the next look read the lanes anew."""
        self._forgotten = True

    def fitting(self, free: Capacity) -> list[Lane]:
        """Return the lanes of which at least one job fits into what is free."""
        with self._lock:
            now = monotonic()
            if self._forgotten or now - self._read_at > self._refresh_s:
                self._read(now)
            return [lane for lane in self._lanes.values() if lane.fits(free) > 0]

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
                lane = self._lanes.get(grant.lane_id)
                if lane is not None:
                    lane.raise_floor(-grant.priority, grant.fence.job_id)
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
        before, self._lanes = self._lanes, {row["id"]: _lane(row) for row in rows}
        for lane_id in before.keys() & self._lanes.keys():
            self._lanes[lane_id].floors = before[lane_id].floors


def _lane(row: Row) -> Lane:
    needs = Capacity(row["cpus"], row["memory_mb"], row["disk_mb"], row["gpus"])
    return Lane(row["id"], needs, row["limited"], row["owner"], row["weight"], row["share"])

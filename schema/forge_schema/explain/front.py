"""Find the jobs ahead of a job on one worker, by the rules of the claim."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from forge_schema.database.pool import Database, Row
from forge_schema.model.explanation import Chance
from forge_schema.model.lease import array
from forge_schema.model.worker import Capacity
from forge_schema.queue.claim import LOOK_PAST
from forge_schema.queue.lane import LAST, SHOWN, Lane, needed, read
from forge_schema.queue.reservation import (
    LaneHead,
    LanePatience,
    Reservation,
    drafted,
    may_come,
    newly_passed,
    reserved,
)

Lent = dict[int, tuple[float, int]]
"""The CPUs and the memory in MiB that a worker lends to a job, by shape."""

# Maximum number of jobs counted per lane.
MOST_AHEAD = 1000
# Jobs of a lane of which a worker looks up how long they may take.
LOOKS = 1 + LOOK_PAST


@dataclass(frozen=True, slots=True)
class Rival:
    """A lane whose first job has at least the job's priority. The job's own lane is included.

    `ahead` of its jobs go before the job. Of the `first` ones of these, it has the `nice` and the
    longest time, if workers let short jobs pass.
    """

    lane: Lane
    shape_id: int
    nice: int
    job_id: int
    ahead: int
    passed_s: float | None
    first: list[tuple[int, float | None]]

    @property
    def place(self) -> tuple[int, float, int]:
        """Its place among the lanes."""
        return self.nice, self.lane.share, self.lane.id

    def before(self, reservation: Reservation, free: Capacity) -> int:
        """Return how many of its jobs a worker takes before the job."""
        last = reservation.last(self.lane, free)
        if last == LAST or reservation.short_s is None:
            return self.ahead if self.nice <= last else 0
        return sum(nice <= last or reservation.lets_pass(longest) for nice, longest in self.first)


@dataclass(frozen=True, slots=True)
class Before:
    """A worker's chance, and how many jobs it takes first."""

    chance: Chance
    ahead: int = 0


class Front:
    """The lanes that compete with a job, and the workers that serve them; read once."""

    def __init__(
        self, database: Database, job: Row, workers: Sequence[int], *, patience_s: float
    ) -> None:
        self._database = database
        self._nice: int = job["nice"]
        self._job_id: int = job["job_id"]
        self._longest_s: float | None = job["longest_s"]
        self._patience = LanePatience(database, patience_s)
        self._rivals = _rivals(database, job)
        self._own_shape: int = job["shape_id"]
        self._lent = self._lendings(workers)

    def of(
        self, worker_id: int, own: Lane, choices: Collection[Capacity], draft: Row | None
    ) -> Before:
        """Return how a worker with these free capacities treats the job; its best GPU kind counts.

        `own` is the job's lane as this worker sees it, and `draft` the gang that the worker keeps
        room for.
        """
        rivals = self._serves(worker_id)
        if draft and draft["job_id"] == self._job_id:
            # Nothing else goes before it.
            return Before(Chance.STARTS if any(map(own.fits, choices)) else Chance.BUSY)
        fronts = [self._before(worker_id, own, rivals, free, draft) for free in choices]
        order = list(Chance)
        return min(fronts, key=lambda before: (order.index(before.chance), before.ahead))

    def ahead(self, worker_id: int) -> int:
        """Return how many jobs a worker takes first, regardless of what is free now."""
        return sum(rival.ahead for rival in self._serves(worker_id))

    def lanes(self) -> list[int]:
        """Return the ids of the competing lanes."""
        return [rival.lane.id for rival in self._rivals]

    def priority(self, worker_id: int) -> int:
        """Return the highest priority waiting for a worker."""
        return max((-rival.nice for rival in self._serves(worker_id)), default=-self._nice)

    def _before(
        self, worker_id: int, own: Lane, rivals: list[Rival], free: Capacity, draft: Row | None
    ) -> Before:
        if own.fits(free) <= 0:
            return Before(Chance.BUSY)
        if draft:
            short_s = draft["short_s"]
            reservation = drafted(
                own, needed(draft), draft["nice"], free, short_s=short_s, lane_id=0
            )
        else:
            reservation = self._reservation(worker_id, rivals, free)
        rivals = [rival for rival in rivals if rival.lane.fits(free) > 0]
        if reservation.last(own, free) < self._nice and not self._passes(own, rivals, reservation):
            return Before(Chance.RESERVED)
        ahead = sum(rival.before(reservation, free) for rival in rivals)
        return Before(Chance.BEHIND if ahead else Chance.STARTS, ahead)

    def _passes(self, own: Lane, rivals: list[Rival], reservation: Reservation) -> bool:
        """Tell whether the job is short, and among the first, so that it may use reserved room."""
        place, ahead = next(
            ((rival.place, rival.ahead) for rival in rivals if rival.lane.id == own.id),
            ((self._nice, own.share, own.id), 0),
        )
        earlier = sum(rival.place < place for rival in rivals)
        return ahead < LOOKS and earlier < SHOWN and reservation.lets_pass(self._longest_s)

    def _reservation(self, worker_id: int, rivals: list[Rival], free: Capacity) -> Reservation:
        lanes = {rival.lane.id: rival.lane for rival in rivals if may_come(rival.lane, free)}
        heads = {
            rival.lane.id: LaneHead(rival.nice, rival.job_id, rival.passed_s)
            for rival in rivals
            if rival.lane.id in lanes
        }
        # The worker's next claim notes it.
        if (lane_id := newly_passed(heads, lanes, free)) is not None:
            heads[lane_id] = replace(heads[lane_id], passed_s=0.0)
        return reserved(heads, lanes, free, partial(self._patience.ended, worker_id))

    def _lendings(self, workers: Sequence[int]) -> dict[int, Lent]:
        shapes = sorted({rival.shape_id for rival in self._rivals} | {self._own_shape})
        ids = {"workers": array(workers), "shapes": array(shapes)}
        rows = self._database.rows("explain_serves", again=True, **ids) if workers else []
        return {
            row["worker_id"]: dict(
                zip(row["shapes"], zip(row["cpus"], row["memory_mb"], strict=True), strict=True)
            )
            for row in rows
        }

    def _serves(self, worker_id: int) -> list[Rival]:
        lent = self._lent.get(worker_id, {})
        return [
            replace(rival, lane=rival.lane.lent(*lent[rival.shape_id]))
            for rival in self._rivals
            if rival.shape_id in lent
        ]


def _rivals(database: Database, job: Row) -> list[Rival]:
    place = {"nice": job["nice"], "share": job["share"], "job_id": job["job_id"]}
    rows = database.rows("explain_lanes", again=True, **place, most=MOST_AHEAD, looks=LOOKS)
    more = ("shape_id", "nice", "job_id", "ahead", "passed_s", "first")
    rivals = [Rival(read(row), **{name: row[name] for name in more}) for row in rows]
    if not any(rival.lane.limited for rival in rivals):
        return rivals
    lanes = array([rival.lane.id for rival in rivals])
    within = {row["id"] for row in database.rows("lanes_with_room", again=True, lanes=lanes)}
    return [rival for rival in rivals if rival.lane.id in within]

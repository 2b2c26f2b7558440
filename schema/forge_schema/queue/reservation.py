"""Backfill and its reservation: room that a worker keeps for a job smaller ones would starve.

A job may be first by priority, fair share and age while too little CPU, memory, disk or GPUs are
free for it. The worker that first passes it by notes that. For a while, smaller jobs backfill the
gap. Once the job's patience ends, a worker reserves what it needs as it comes free; then only jobs
of a higher priority, and jobs that fit beside it, go before it.

For a gang, a job on several machines, the sweeper drafts workers (`forge_draft`): they reserve room
for it likewise. Until it should form, jobs with a time limit may use this room. One of them keeps
room for a job with guaranteed GPUs while others leave it (`forge_displace`).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from forge_schema.database.pool import Database
from forge_schema.model.lease import array
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import LAST, Edition, Lane, fitting, suits

# Seconds for which other jobs are backfilled around a job. Each worker that could serve it waits
# one turn longer than the one before, so that a whole fleet does not stand idle for one job.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for a job of this lane and `nice`; without a lane, none.

    Jobs that end within `short_s` seconds may use it, if that is not None.
    """

    lane: Lane | None = None
    nice: int = LAST
    short_s: float | None = None

    def jobs(self, lane: Lane, free: Capacity) -> int:
        """Return how many jobs of a lane may be claimed beside the reservation."""
        return self._beside(lane, free) or lane.fits(free)

    def last(self, lane: Lane, free: Capacity) -> int:
        """Return the last `nice` to claim; others need the reserved room and do not come first."""
        if self.lane is None or lane.id == self.lane.id or self._beside(lane, free):
            return LAST
        return self.nice - 1

    def lets_pass(self, longest_s: float | None) -> bool:
        """Tell whether a job that takes so long at most may use the reserved room."""
        return longest_s is not None and self.short_s is not None and longest_s <= self.short_s

    def _beside(self, lane: Lane, free: Capacity) -> int:
        if self.lane is None or lane.id == self.lane.id:
            return 0
        return max(0, lane.fits(free.without(self.lane.needs)))


@dataclass(frozen=True, slots=True)
class LaneHead:
    """A lane's first job; a worker first passed it by, for lack of room, `passed_s` seconds ago."""

    nice: int
    job_id: int
    passed_s: float | None = None


Heads = Mapping[int, LaneHead]
"""The first job of each lane that may be served now, by lane."""


class LanePatience:
    """Tells whether a worker has passed a job by for long enough: for its turns of `patience_s`.

    How many turns that is for a worker and a job, it asks the database once.
    """

    def __init__(self, database: Database, patience_s: float) -> None:
        self._database = database
        self._patience_s = patience_s
        self._turns: dict[tuple[int, int], int] = {}

    def ended(self, worker_id: int, lane_id: int, head: LaneHead) -> bool:
        """Tell whether a worker reserves room for the first job of a lane."""
        if head.passed_s is None or head.passed_s < self._patience_s:
            return False
        key = worker_id, head.job_id
        if key not in self._turns:
            ids = {"worker_id": worker_id, "lane_id": lane_id, "job_id": head.job_id}
            self._turns[key] = turns(self._database, ids)
        return head.passed_s >= self._patience_s * self._turns[key]

    def keep(self, heads: Iterable[LaneHead]) -> None:
        """Forget all other jobs."""
        waiting = {head.job_id for head in heads}
        self._turns = {key: turns for key, turns in self._turns.items() if key[1] in waiting}


class Backfill:
    """The reservations of one worker. Every `refresh_s` seconds it notes a job that it passes by.

    Since when a job was passed by is in the database, so that all workers, and a worker that starts
    anew, count from the same moment.
    """

    def __init__(
        self, database: Database, worker_id: int, *, refresh_s: float, patience_s: float
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._refresh_s = refresh_s
        self._patience = LanePatience(database, patience_s)
        # By model of GPU: when it looked, and which of the lanes had no room under their limits.
        self._looked: dict[str, tuple[float, set[int]]] = {}

    def reservation(
        self, edition: Edition, served: Mapping[int, Capacity], free: Capacity
    ) -> Reservation:
        """Return a reservation if the patience of a job that does not fit has ended.

        `served` has the needs of each shape that the worker serves.
        """
        shapes = {shape for shape, needs in served.items() if may_be_free(needs, free)}
        if all(fitting(served[shape], free) > 0 for shape in shapes):
            return Reservation()
        now = monotonic()
        waiting = edition.waiting(shapes)
        lanes = {lane.id: replace(lane, needs=served[lane.shape_id]) for lane in waiting}
        at, full = self._looked.get(free.gpu_model, (-math.inf, set[int]()))
        if looks := now - at >= self._refresh_s:
            full = self._full(lanes)
            self._looked[free.gpu_model] = now, full
        heads = {
            i: head for i, lane in lanes.items() if i not in full and (head := _head(lane, now))
        }
        if looks:
            self._note(edition, heads, lanes, free, now)
        return reserved(heads, lanes, free, partial(self._patience.ended, self._worker_id))

    def _note(
        self,
        edition: Edition,
        heads: dict[int, LaneHead],
        lanes: Mapping[int, Lane],
        free: Capacity,
        now: float,
    ) -> None:
        self._patience.keep(heads.values())
        if (lane_id := newly_passed(heads, lanes, free)) is not None:
            head = heads[lane_id]
            place = {"lane_id": lane_id, "nice": head.nice, "job_id": head.job_id}
            self._database.row("pass_by", again=True, **place)
            edition.passed_by(lane_id, now)
            heads[lane_id] = replace(head, passed_s=0.0)

    def _full(self, lanes: Mapping[int, Lane]) -> set[int]:
        limited = {i for i, lane in lanes.items() if lane.limited}
        if not limited:
            return limited
        # Without a lock this is a hint, like everything here.
        rows = self._database.rows("lanes_with_room", again=True, lanes=array(list(limited)))
        return limited - {row["id"] for row in rows}


def _head(lane: Lane, now: float) -> LaneHead | None:
    if lane.nice is None or lane.job_id is None:
        return None
    return LaneHead(
        lane.nice, lane.job_id, None if lane.passed_at is None else now - lane.passed_at
    )


def newly_passed(heads: Heads, lanes: Mapping[int, Lane], free: Capacity) -> int | None:
    """Return the lane whose head is first of all and is passed by for the first time, if any."""
    if not heads:
        return None
    lane_id = first({i: (head.nice, head.job_id) for i, head in heads.items()}, lanes)
    fits = lanes[lane_id].fits(free) > 0
    return None if fits or heads[lane_id].passed_s is not None else lane_id


def reserved(
    heads: Heads,
    lanes: Mapping[int, Lane],
    free: Capacity,
    is_impatient: Callable[[int, LaneHead], bool],
) -> Reservation:
    """Return the reservation for the first job whose patience has ended and that does not fit."""
    late = [
        lane_id
        for lane_id, head in heads.items()
        if lanes[lane_id].fits(free) <= 0 and is_impatient(lane_id, head)
    ]
    if not late:
        return Reservation()
    chosen = min(late, key=lambda i: (heads[i].nice, -(heads[i].passed_s or 0), heads[i].job_id))
    return Reservation(lanes[chosen], heads[chosen].nice)


def drafted(
    lane: Lane,
    needs: Capacity,
    nice: int,
    free: Capacity,
    *,
    short_s: float | None,
    lane_id: int | None = None,
) -> Reservation:
    """Return the reservation of a worker that is drafted for a gang with these needs.

    The gang is of `lane`, or of another one with `lane_id`. It should form in `short_s` seconds.
    """
    # The gang may get GPUs of another kind here, with the same CPUs and memory.
    of_kind = needs if may_be_free(needs, free) else replace(needs, gpus=0)
    own = lane.id if lane_id is None else lane_id
    left_s = short_s if short_s and short_s > 0 else None
    return Reservation(replace(lane, id=own, needs=of_kind), nice, left_s)


def turns(database: Database, ids: Mapping[str, int]) -> int:
    """Return how many workers reserve room for a job before or with this one."""
    row = database.row("workers_before", again=True, **ids)
    return 1 + (int(row["workers"]) if row else 0)


def first(heads: Mapping[int, tuple[int, int]], lanes: Mapping[int, Lane]) -> int:
    """Return the lane whose head, a `(nice, job_id)`, is first by priority, fair share and age."""
    return min(heads, key=lambda i: (heads[i][0], lanes[i].share, heads[i][1]))


def may_come(lane: Lane, free: Capacity) -> bool:
    """Tell whether a lane's jobs may come to this worker one day, as `may_be_free` does."""
    return may_be_free(lane.needs, free)


def may_be_free(needs: Capacity, free: Capacity) -> bool:
    """Tell whether enough GPUs of this kind may one day be free here for jobs with these needs.

    Of everything else, the worker has enough for each lane that it serves.
    """
    gpus = needs.gpus
    return not gpus or (free.gpus > 0 and gpus <= free.gpus_in_all and suits(needs, free))

"""The claim: one statement."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from heapq import heapify, heapreplace
from time import monotonic
from typing import Any
from uuid import UUID

from forge_schema.database.pool import Database, Row
from forge_schema.model.job import with_shares
from forge_schema.model.lease import End, Fence, Grant, array, fences, usages
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import Lane
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.reservation import Reservation

# Jobs read beyond those to take: other claims may have locked the first ones.
LEAST_PAST = 2
# Up to so many jobs, the order of claims is exact even if more urgent jobs came just now. A claim
# of more sees a few of these in each of many lanes, and the next one the others.
EXACT = 16

# Extra rows that a claim reads, since other claims may have locked the first ones.
LOOK_PAST = 16
LOOK_FAR = 1000


def fair_peeks(lanes: Sequence[Lane], count: int, past: int) -> dict[int, int]:
    """Return how many jobs of each lane to read for a claim of `count`, by the lane's id.

    Lanes whose first jobs are equally urgent share the claim, the one with the least share first.
    """
    turns: Counter[int] = Counter()
    for nice in {lane.nice for lane in lanes}:
        turns.update(_turns([lane for lane in lanes if lane.nice == nice], count))
    each, least = max(LEAST_PAST, past // max(1, len(turns))), count if count <= EXACT else 0
    return {
        lane.id: max(turns[lane.id], least) + (each if turns[lane.id] else LEAST_PAST)
        for lane in lanes
    }


def _turns(lanes: Iterable[Lane], count: int) -> Iterable[int]:
    """Yield the ids of the lanes that take turns, so that their shares stay even."""
    heap = [(lane.share, lane.id, lane.step) for lane in lanes]
    heapify(heap)
    for _ in range(count):
        share, lane_id, step = heap[0]
        yield lane_id
        heapreplace(heap, (share + step, lane_id, step))


def claim(
    database: Database,
    lanes: Lanes,
    free: Capacity,
    *,
    count: int,
    ttl: timedelta,
    nonce: UUID,
    warm: Sequence[int] = (),
    successes: Sequence[End] = (),
    others: Sequence[End] = (),
) -> tuple[int, list[Row], list[Grant]]:
    """End leases and claim jobs.

    The successes are ordered by job and token, the order in which every statement locks leases.
    The `others` end before the claim in its transaction; if there is a member of a run among them,
    no job is claimed. One nonce serves all leases of a claim: each has its own token. A claim that
    ends leases looks once: its caller waits for the answer, and then looks again.

    Returns:
        How many successes ended now, the rows of `finish` for the others, and the grants.
    """
    done, looks = 0, _Looks(lanes, free, count, once=bool(successes or others))
    of_others: list[Row] = []
    while True:
        ended = {**fences([end.fence for end in successes]), **usages(successes)}
        params: dict[str, Any] = {**ended, "worker_id": lanes.worker_id, "ttl": ttl}
        params |= {"nonce": nonce, "warm": array(warm), **looks.places()}
        params["others"] = array([end.fence.job_id for end in others])
        began = monotonic()
        if others:
            # Submitting looks for room too, and would load much for this.
            from forge_schema.ending import finish_params  # noqa: PLC0415

            finish = ("finish", finish_params(others))
            of_others, rows = database.together(finish, ("finish_and_claim", params))
        else:
            rows = database.rows("finish_and_claim", **params)
        lanes.took(monotonic() - began)
        done += rows[0]["finished"]
        if not looks.go_on(rows[0]):
            break
    grants = _grants(rows, looks.shown, nonce)
    lanes.advance(grants, passing=looks.passing(grants))
    return done, of_others, grants


class _Looks:
    """The looks at the lanes of one claim, which end with the first that is granted a job."""

    _reservation: Reservation

    def __init__(self, lanes: Lanes, free: Capacity, count: int, *, once: bool) -> None:
        self._lanes = lanes
        self._free = free
        self._count = count
        self._once = once
        self._past = LOOK_PAST
        self._seen = self._stale = False
        self._passed: set[int] = set()
        self.shown = lanes.shown(free, count=count)

    def places(self) -> dict[str, Any]:
        """Return where to look, and for how many jobs."""
        reservation = self._reservation = self._lanes.reservation(self._free)
        most = self._count
        if most > 1:
            most = min([most, *(reservation.jobs(lane, self._free) for lane in self.shown)])
        last_of = partial(reservation.last, free=self._free)
        # How long a job may take is looked up for each: for the first ones of the first lanes.
        short_s = None if self._passed else reservation.short_s
        look = self._past if short_s is None else LOOK_PAST
        return _places(self._lanes, last_of, self.shown, most=most, look=look, short_s=short_s)

    def passing(self, grants: Sequence[Grant]) -> set[int]:
        """Return the jobs that passed others of their lane, which may take too long."""
        if self._reservation.short_s is None:
            return set()
        last = {lane.id: self._reservation.last(lane, self._free) for lane in self.shown}
        return {grant.job_id for grant in grants if -grant.priority > last[grant.lane_id]}

    def go_on(self, row: Row) -> bool:
        """Take note of a look's first row, and tell whether there is another look."""
        lanes = self._lanes
        if row["stale"]:
            # It keeps room for a gang by now.
            lanes.forget()
            self.shown = lanes.shown(self._free, count=self._count)
        self._seen = self._seen or row["seen"]
        if row["heads"] is not None:
            lanes.saw(self.shown, row["heads"], self._reservation)
        if self._once or not self._count or row["job_id"] is not None:
            return False
        if row["stale"] and not self._stale:
            self._stale = True
            return bool(self.shown)
        self._passed |= {lane.id for lane in self.shown} if lanes.many else set()
        further = lanes.shown(self._free, self._passed, count=self._count) if lanes.many else []
        if not further and not (further := self._far()):
            return False
        self.shown = further
        return True

    def _far(self) -> list[Lane]:
        """Return the lanes for a last, longer look; none if it has been, or would find nothing.

        Jobs below the watermarks show up once those are forgotten, and a longer look gets past rows
        that other claims hold locked. Without it, the worker would go idle.
        """
        if self._past == LOOK_FAR or not (self._seen or self._lanes.doubtful):
            return []
        self._past, self._passed = LOOK_FAR, set()
        if not self._lanes.doubtful:
            return self._lanes.shown(self._free, count=self._count)
        self._lanes.make_sure()
        # Read just now, they tell which of them have jobs.
        shown = self._lanes.shown(self._free, count=self._count)
        return [lane for lane in shown if lane.nice is not None]


def claimed_before(
    database: Database, lanes: Lanes, nonce: UUID, *, ttl: timedelta, answered: bool
) -> tuple[list[Grant], list[Fence]]:
    """Return what an earlier claim with this nonce was granted.

    A gang may have leased the worker since; if it was `answered` that there was nothing, only that.

    Returns:
        The grants, and the leases of jobs that the worker may no longer run.
    """
    name = {"worker_id": lanes.worker_id, "nonce": nonce}
    rows = database.rows("formed", again=True, **name, ttl=ttl)
    if not answered:
        rows += database.rows("claimed_before", again=True, **name)
    grants = _grants(rows, lanes.served({row["lane_id"] for row in rows}), nonce) if rows else []
    kept = {grant.fence for grant in grants}
    fences = [Fence(row["job_id"], row["token"], nonce) for row in rows]
    return grants, [fence for fence in fences if fence not in kept]


def next_job(database: Database, lanes: Lanes, past: Sequence[int] = ()) -> Grant | None:
    """Return the job that a full worker would likely be granted next, without a lease: token 0.

    Jobs in `past` are passed over.
    """
    if not (first := lanes.first()):
        return None
    which = {"worker_id": lanes.worker_id, "lanes": array([lane.id for lane in first])}
    which["past"] = array(list(past))
    row = database.row("next_job", again=True, **which)
    return None if row is None else _grants([row], first, UUID(int=0))[0]


def upcoming(database: Database, lanes: Lanes) -> tuple[bool, bool]:
    """Return whether a job could be claimed, and whether the worker is drafted for a gang, now."""
    lanes.forget()
    return next_job(database, lanes) is not None, lanes.drafted is not None


def next_inputs(database: Database, worker_id: int, job_id: int) -> Row | None:
    """Return the digests of a waiting job's bundle and saved image, if the worker may run it."""
    return database.row("next_inputs", again=True, worker_id=worker_id, job_id=job_id)


def _places(
    lanes: Lanes,
    last_of: Callable[[Lane], int],
    shown: list[Lane],
    *,
    most: int,
    look: int,
    short_s: float | None,
) -> dict[str, Any]:
    ranges = lanes.ranges(shown)
    lasts = [last for _, _, last in ranges]
    any_nices = [last_of(lane) for lane, _, _ in ranges]
    peeks = {lane.id: most + look for lane in shown}
    if lanes.many and look == LOOK_PAST and short_s is None:
        peeks = fair_peeks(shown, most, look)
    return {
        "lanes": array([lane.id for lane, _, _ in ranges]),
        "shares": array([lane.share for lane, _, _ in ranges]),
        "steps": array([lane.step for lane, _, _ in ranges]),
        "leaves": array([lanes.leaves(lane) for lane, _, _ in ranges]),
        "after_nices": array([after[0] for _, after, _ in ranges]),
        "after_jobs": array([after[1] for _, after, _ in ranges]),
        "last_nices": array([*map(min, lasts, any_nices)] if short_s is None else lasts),
        "any_nices": None if short_s is None else array(any_nices),
        "short_s": short_s,
        "count": most,
        "peek": most and most + look,
        "peeks": array([most and peeks[lane.id] for lane, _, _ in ranges]),
        "many": lanes.many,
        "drafted": lanes.drafted,
    }


def _grants(rows: Sequence[Row], shown: Sequence[Lane], nonce: UUID) -> list[Grant]:
    needs = {lane.id: lane.needs for lane in shown}
    taken = [row for row in rows if row["job_id"] is not None and row["lane_id"] in needs]
    grants = [_grant(row, nonce, needs[row["lane_id"]]) for row in taken]
    return sorted(grants, key=lambda grant: (-grant.priority, grant.job_id))


def _grant(row: Row, nonce: UUID, needs: Capacity) -> Grant:
    return Grant(
        job_id=row["job_id"],
        token=row["token"],
        nonce=nonce,
        attempt=row["attempt"],
        name=row["name"],
        owner=row["owner"],
        spec=with_shares(row["spec"], {"cpus": needs.cpus, "memory_mb": needs.memory_mb}),
        bundle_digest=row["bundle_digest"],
        timeout_s=row["timeout_s"],
        lane_id=row["lane_id"],
        priority=-row["nice"],
        failures=row["failures"],
        losses=row["losses"],
        preemptions=row["preemptions"],
        age_s=row.get("age_s", 0.0),
        parts=row["parts"] or [],
        rank=row.get("rank", 0),
        nodes=row.get("nodes", 1),
        resumes=row.get("resumes", True),
        team=row.get("team"),
    )

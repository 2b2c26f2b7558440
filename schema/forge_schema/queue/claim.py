"""The claim: one statement."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from forge_schema.database.pool import Database, Row, Statement
from forge_schema.model.lease import End, Fence, Grant, array, fences, usages
from forge_schema.model.spec import with_shares
from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import Lane
from forge_schema.queue.lanes import Lanes

# Extra rows that a claim reads, since other claims may have locked the first ones.
LOOK_PAST = 16
LOOK_FAR = 1000


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
    first: Statement | None = None,
) -> tuple[int, list[Row], list[Grant]]:
    """End leases and claim jobs.

    The successes are ordered by job and token, the order in which every statement locks leases.
    `first` runs before the claim in its transaction. One nonce serves all leases of a claim: each
    has its own token.

    Returns:
        How many successes ended now, the rows of `first`, and the grants.
    """
    done, look, seen = 0, LOOK_PAST, False
    told: list[Row] = []
    passed: set[int] = set()
    shown = lanes.shown(free, count=count)
    while True:
        reservation = lanes.reservation(free)
        most = count
        if count > 1:
            most = min([count, *(reservation.jobs(lane, free) for lane in shown)])
        ended = {**fences([end.fence for end in successes]), **usages(successes)}
        params: dict[str, Any] = {**ended, "worker_id": lanes.worker_id}
        params |= {"ttl": ttl, "nonce": nonce, "warm": array(warm)}
        last_of = partial(reservation.last, free=free)
        began = monotonic()
        params |= _places(lanes, last_of, shown, most=most, look=look)
        if first is None:
            rows = database.rows("finish_and_claim", **params)
        else:
            told, rows = database.together(first, ("finish_and_claim", params))
        lanes.took(monotonic() - began)
        done += rows[0]["finished"]
        seen = seen or rows[0]["seen"]
        if (heads := rows[0]["heads"]) is not None:
            lanes.saw(shown, heads, reservation)
        if not count or rows[0]["job_id"] is not None:
            break
        passed |= {lane.id for lane in shown} if lanes.many else set()
        further = lanes.shown(free, passed, count=count) if lanes.many else []
        if not further:
            if look == LOOK_FAR or not (seen or lanes.doubtful):
                break
            # Jobs below the watermarks show up once those are forgotten, and a longer look gets
            # past rows that other claims hold locked. Without it, the worker would go idle.
            look, passed = LOOK_FAR, set()
            if lanes.doubtful:
                lanes.forget()
            further = lanes.shown(free, count=count)
        shown = further
        successes, first = (), None
    grants = _grants(rows, shown, nonce)
    lanes.advance(grants)
    return done, told, grants


def claimed_before(
    database: Database, lanes: Lanes, nonce: UUID
) -> tuple[list[Grant], list[Fence]]:
    """Return what an earlier claim with this nonce was granted.

    Returns:
        The grants, and the leases of jobs that the worker may no longer run.
    """
    rows = database.rows("claimed_before", again=True, worker_id=lanes.worker_id, nonce=nonce)
    grants = _grants(rows, lanes.served({row["lane_id"] for row in rows}), nonce) if rows else []
    kept = {grant.fence for grant in grants}
    fences = [Fence(row["job_id"], row["token"], nonce) for row in rows]
    return grants, [fence for fence in fences if fence not in kept]


def _places(
    lanes: Lanes,
    last_of: Callable[[Lane], int],
    shown: list[Lane],
    *,
    most: int,
    look: int,
) -> dict[str, Any]:
    ranges = lanes.ranges(shown)
    return {
        "lanes": array([lane.id for lane, _, _ in ranges]),
        "shares": array([lane.share for lane, _, _ in ranges]),
        "steps": array([lane.step for lane, _, _ in ranges]),
        "after_nices": array([after[0] for _, after, _ in ranges]),
        "after_jobs": array([after[1] for _, after, _ in ranges]),
        "last_nices": array([min(last, last_of(lane)) for lane, _, last in ranges]),
        "count": most,
        "peek": most and most + look,
        "many": lanes.many,
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
    )

"""The claim: what is asked of the database for it, under limits or without."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from forge_schema.database.pool import Connection, Database, Row, run
from forge_schema.model.lease import End, Grant, array, fences, usages
from forge_schema.model.machine import Capacity
from forge_schema.model.spec import with_shares
from forge_schema.queue.lane import Lane
from forge_schema.queue.lanes import Lanes

# How far past the wanted count a claim looks, since others may lock what is in front.
LOOK_PAST = 16
LOOK_FAR = 1000


def claim(
    database: Database,
    lanes: Lanes,
    free: Capacity,
    *,
    ends: Sequence[End],
    count: int,
    ttl: timedelta,
) -> tuple[int, list[Grant]]:
    """End leases as succeeded and claim jobs; returns how many were ended now, and the grants.

    The ends come ordered by job and token, as everybody locks leases in that order.
    """
    # One nonce serves all leases of a claim: each has its own token.
    nonce = uuid4()
    ask = partial(_ask, database, lanes, free=free, count=count, ttl=ttl, nonce=nonce)
    rows, fitting = ask(ends)
    done: int = rows[0]["finished"]
    if count and rows[0]["job_id"] is None:
        # What came in below the floors shows once they are forgotten, and what many others
        # locked in front is behind a longer look: a worker told of nothing would rest now.
        if lanes.doubtful:
            lanes.forget()
        rows, fitting = ask([], look=LOOK_FAR)
    needs = {lane.id: lane.needs for lane in fitting}
    taken = [row for row in rows if row["job_id"] is not None]
    grants = [_grant(row, nonce, needs[row["lane_id"]]) for row in taken]
    grants.sort(key=lambda grant: (-grant.priority, grant.job_id))
    lanes.advance(grants)
    return done, grants


def _ask(
    database: Database,
    lanes: Lanes,
    ends: Sequence[End],
    *,
    free: Capacity,
    count: int,
    ttl: timedelta,
    nonce: UUID,
    look: int = LOOK_PAST,
) -> tuple[list[Row], list[Lane]]:
    fitting = lanes.fitting(free)
    reserve = lanes.reserve(free)
    if count > 1:
        count = min([count, *(reserve.jobs(lane, free) for lane in fitting)])
    places = partial(_places, lanes, partial(reserve.last, free=free))
    ended: dict[str, Any] = {**fences([end.fence for end in ends]), **usages(ends)}
    params = {**ended, "worker_id": lanes.worker_id, "ttl": ttl, "nonce": nonce}
    if not any(lane.limited for lane in fitting):
        began = monotonic()
        params |= places(fitting, count, look)
        rows = database.rows("finish_and_claim", **params, within_limits=False)
        lanes.took(monotonic() - began)
        return rows, fitting
    with database.transaction() as connection:
        within = _within_limits(connection, fitting)
        params |= places(within, min(count, 1), look)
        return run(connection, "finish_and_claim", {**params, "within_limits": True}), within


def _within_limits(connection: Connection, fitting: list[Lane]) -> list[Lane]:
    # The count is sound because the limits' rows stay locked until the claim has committed.
    lanes = array([lane.id for lane in fitting])
    run(connection, "lock_limits", {"lanes": lanes})
    rows = run(connection, "lanes_within_limits", {"lanes": lanes})
    allowed = {row["id"] for row in rows}
    return [lane for lane in fitting if lane.id in allowed]


def _places(
    lanes: Lanes, last_of: Callable[[Lane], int], fitting: list[Lane], count: int, look: int
) -> dict[str, Any]:
    stretches = lanes.stretches(fitting)
    return {
        "lanes": array([lane.id for lane, _, _ in stretches]),
        "shares": array([lane.share for lane, _, _ in stretches]),
        "after_nices": array([after[0] for _, after, _ in stretches]),
        "after_jobs": array([after[1] for _, after, _ in stretches]),
        "last_nices": array([min(last, last_of(lane)) for lane, _, last in stretches]),
        "count": count,
        "peek": count + look,
    }


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
    )

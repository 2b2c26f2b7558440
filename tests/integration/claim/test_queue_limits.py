"""Limits and pauses: never one job or GPU too many, and nothing from a paused queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import run
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, State
from support.at_once import at_once
from support.queue.rig import Worker, spec

if TYPE_CHECKING:
    from support.queue.rig import Rig

GPUS = [{"name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(64)]


def limit(rig: Rig, what: str, *, max_jobs: int | None = None, max_gpus: int | None = None) -> None:
    """Set the limits of the queue `default` or of the owner `ann`."""
    if what == "queue":
        rig.admin.limit_queue("default", max_jobs=max_jobs, max_gpus=max_gpus)
    else:
        rig.admin.limit_owner("ann", max_jobs=max_jobs, max_gpus=max_gpus)


@pytest.mark.parametrize("what", ["queue", "owner"])
@pytest.mark.parametrize(
    ("limits", "granted"),
    [
        ({"max_jobs": 3}, 3),
        ({"max_gpus": 5}, 2),
        ({"max_jobs": 2, "max_gpus": 7}, 2),
        ({"max_jobs": 9, "max_gpus": 6}, 3),
        ({"max_jobs": 0}, 0),
        ({"max_gpus": 1}, 0),
        ({}, 8),
    ],
)
def test_as_many_run_as_the_limit_says(
    rig: Rig, what: str, limits: dict[str, int], granted: int
) -> None:
    limit(rig, what, **limits)
    rig.submit_many(8, gpus=2)
    worker = rig.worker(gpus=GPUS)
    grants = [grant for _ in range(10) for grant in worker.claim(count=4)]
    assert len(grants) == granted
    if 0 < granted < 8:
        rig.finish(grants[0])
        assert len([grant for _ in range(3) for grant in worker.claim()]) == 1


def test_a_limit_holds_over_all_lanes_of_its_queue_and_no_further(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=2)
    for owner in ("ann", "bob"):
        for cpus in (1, 2):
            rig.submit_many(2, owner=owner, cpus=cpus, priority=5)
    elsewhere = rig.submit_many(3, queue="other")
    worker = rig.worker()
    grants = [grant for _ in range(10) for grant in worker.claim(count=2)]
    assert len(grants) == 5
    assert {grant.fence.job_id for grant in grants} > set(elsewhere)


def test_finishing_makes_room_for_the_claim_in_the_same_transaction_or_the_next(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=1)
    rig.submit_many(5)
    worker = rig.worker()
    (held,) = worker.claim()
    done = 0
    for _ in range(20):
        ends = [End(held.fence, Reason.SUCCEEDED)]
        _, grants = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
        assert rig.count("lease") <= 1
        if grants:
            done, (held,) = done + 1, grants
    rig.finish(held)
    assert (done, rig.count("outcome")) == (4, 5)


@pytest.mark.parametrize("what", ["queue", "owner"])
@pytest.mark.parametrize("limits", [{"max_jobs": 3}, {"max_gpus": 6}])
def test_eight_claimers_at_once_never_exceed_a_limit(
    rig: Rig, what: str, limits: dict[str, Any]
) -> None:
    limit(rig, what, **limits)
    rig.submit_many(40, gpus=2)
    rig.submit_many(40, gpus=2, cpus=2)
    workers = [rig.worker(f"w{n}", gpus=GPUS) for n in range(8)]
    seen: list[int] = []

    def work(worker: Worker) -> None:
        while rig.count("ready"):
            for grant in worker.claim():
                seen.append(rig.count("lease"))
                rig.finish(grant)

    at_once(*[partial(work, worker) for worker in workers])
    assert (len(seen), max(seen) <= 3) == (80, True)
    assert rig.count("outcome") == 80


def warm_workers(rig: Rig) -> list[Worker]:
    """Register eight workers that have read their lanes, and look again only when told."""
    workers = [rig.worker(f"w{n}", gpus=GPUS) for n in range(8)]
    for worker in workers:
        worker.lanes._refresh_s = 3600
        rig.finish(worker.claim_one())
    return workers


def claimed_at_once(workers: list[Worker]) -> int:
    """Have workers claim at the same time, and count the jobs that they are granted."""
    return sum(map(len, at_once(*[partial(worker.claim, 8) for worker in workers])))


@pytest.mark.parametrize("what", ["queue", "owner"])
@pytest.mark.parametrize("limits", [{"max_jobs": 0}, {"max_gpus": 0}])
def test_a_new_limit_holds_for_workers_that_remember_their_lanes(
    rig: Rig, what: str, limits: dict[str, int]
) -> None:
    rig.submit_many(64, gpus=1)
    rig.submit_many(8, gpus=1, owner="bob", queue="other", priority=-1)
    workers = warm_workers(rig)
    limit(rig, what, **limits)
    # What no limit is over goes on.
    assert claimed_at_once(workers) == 8
    assert claimed_at_once(workers) == 0
    assert rig.count("ready") == 56


@pytest.mark.parametrize("what", ["queue", "owner"])
def test_a_worker_that_is_told_of_a_new_limit_claims_within_it(rig: Rig, what: str) -> None:
    rig.submit_many(64)
    workers = warm_workers(rig)
    with rig.listening() as heard:
        limit(rig, what, max_jobs=2)
        assert heard() == ["ready"]
    for worker in workers:
        worker.lanes.doubt()
    assert claimed_at_once(workers) == 2
    assert rig.count("lease") == 2


@pytest.mark.parametrize("what", ["queue", "owner"])
def test_a_limit_that_is_lowered_holds_among_claimers(rig: Rig, what: str) -> None:
    limit(rig, what, max_jobs=5)
    rig.submit_many(60)
    workers = [rig.worker(f"w{n}") for n in range(8)]
    for worker in workers:
        worker.lanes._refresh_s = 3600
    held = [worker.claim_one() for worker in workers[:5]]
    seen: list[int] = []

    def work(worker: Worker) -> None:
        while rig.count("ready"):
            for grant in worker.claim():
                seen.append(rig.count("lease"))
                rig.finish(grant)

    def lower() -> None:
        limit(rig, what, max_jobs=2)
        for grant in held:
            rig.finish(grant)

    at_once(*[partial(work, worker) for worker in workers], lower)
    assert (len(seen), max(seen) <= 2) == (55, True)


def test_a_claim_under_a_limit_waits_for_another_that_is_under_way(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=1)
    rig.submit_many(2)
    one, other = rig.worker("one"), rig.worker("other")
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            assert len(queue.claim(one.lanes, one.free)) == 1
            second = pool.submit(other.claim)
            rig.wait_until_blocked()
        assert second.result(timeout=120) == []
    assert rig.count("lease") == 1


def test_a_paused_queue_grants_nothing_until_it_is_resumed(rig: Rig) -> None:
    job_id = rig.submit()
    other = rig.submit(queue="other")
    worker = rig.worker()
    rig.admin.pause("default")
    assert [grant.fence.job_id for grant in worker.claim(count=9)] == [other]
    assert (worker.claim(), rig.state(job_id)) == ([], State.READY)
    rig.admin.pause("default", paused=False)
    assert worker.claim_one().fence.job_id == job_id


def test_a_pause_holds_for_lanes_made_afterwards_and_for_running_jobs_changes_nothing(
    rig: Rig,
) -> None:
    rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    rig.admin.pause("default")
    rig.submit(cpus=2, owner="bob")
    assert worker.claim() == []
    assert worker.renew(grant).standings == {grant.fence: "ok"}
    assert rig.finish(grant).state == State.SUCCEEDED


def test_a_pause_is_felt_by_a_worker_that_remembers_its_lanes(rig: Rig) -> None:
    rig.submit_many(2)
    worker = rig.worker()
    worker.lanes._refresh_s = 3600
    worker.claim_one()
    rig.admin.pause("default")
    assert worker.claim() == []


def test_a_lane_that_is_being_made_does_not_escape_a_pause(rig: Rig) -> None:
    rig.submit()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.submit([spec(cpus=2)])
            paused = pool.submit(rig.admin.pause, "default")
            rig.wait_until_blocked()
        paused.result(timeout=120)
    assert rig.worker().claim(count=9) == []


def test_limits_set_at_the_same_time_are_both_known_to_the_lanes(rig: Rig) -> None:
    limit(rig, "owner", max_jobs=5)
    rig.submit()
    lanes = {"queue": "default", "owner": None}
    of_queue = {"name": "default", "max_jobs": 0, "max_gpus": None, "actor": "user:root"}
    with ThreadPoolExecutor(1) as pool:
        with rig.database.transaction() as connection:
            run(connection, "set_queue_limits", of_queue)
            run(connection, "lock_lanes", lanes)
            run(connection, "lanes_follow", lanes)
            unlimited = pool.submit(limit, rig, "owner")
            rig.wait_until_blocked()
        unlimited.result(timeout=120)
    assert rig.row("SELECT limited FROM lane") == {"limited": True}
    limit(rig, "queue")
    assert rig.row("SELECT limited FROM lane") == {"limited": False}


def test_a_lane_made_below_a_limit_is_limited(rig: Rig) -> None:
    limit(rig, "owner", max_jobs=5)
    rig.submit()
    rig.submit(owner="bob")
    rows = rig.rows("SELECT owner, limited FROM lane ORDER BY owner")
    assert rows == [{"owner": "ann", "limited": True}, {"owner": "bob", "limited": False}]


def test_what_an_admin_sets_is_in_the_audit_trail(rig: Rig) -> None:
    rig.admin.limit_queue("default", max_jobs=1, max_gpus=2)
    rig.admin.limit_owner("ann", max_jobs=None, max_gpus=4, weight=3)
    rig.admin.pause("default")
    rig.admin.pause("default", paused=False)
    told = rig.rows("SELECT actor, action, detail FROM event ORDER BY id")
    assert {row["actor"] for row in told} == {"user:root"}
    assert [(row["action"], row["detail"]) for row in told] == [
        ("queue limits set", {"name": "default", "max_jobs": 1, "max_gpus": 2}),
        ("owner quota set", {"owner": "ann", "max_jobs": None, "max_gpus": 4, "weight": 3}),
        ("paused", {"queue": "default"}),
        ("resumed", {"queue": "default"}),
    ]

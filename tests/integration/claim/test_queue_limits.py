"""Limits: never one job or GPU too many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import run
from forge_schema.explain import explain
from forge_schema.model.admin import OwnerSettings, TeamChanges
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, Role
from forge_schema.queue.limits import QueueInUse, QueueNotFound, unset
from forge_schema.service.caller import Caller
from forge_schema.service.service import Service
from forge_schema.sweeper.tick import Tick
from forge_schema.wake import Hint
from psycopg.types.json import Jsonb
from support.at_once import at_once
from support.queue.rig import Worker

if TYPE_CHECKING:
    from support.queue.rig import Rig

GPUS = [{"name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(64)]


def limit(rig: Rig, what: str, *, max_jobs: int | None = None, max_gpus: int | None = None) -> None:
    """Set the limits of the queue `default`, of the owner `ann` or of the owner's team."""
    if what == "queue":
        rig.admin.set_queue("default", {"max_jobs": max_jobs, "max_gpus": max_gpus})
    elif what == "team":
        rig.admin.set_team("nlp", TeamChanges(join=["ann"], max_jobs=max_jobs, max_gpus=max_gpus))
    else:
        rig.admin.limit_owner("ann", OwnerSettings(max_jobs=max_jobs, max_gpus=max_gpus))


@pytest.mark.parametrize("what", ["queue", "owner", "team"])
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


def test_what_finishes_makes_room_for_the_claim_of_the_same_trip(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=1)
    rig.submit_many(5)
    worker = rig.worker()
    (held,) = worker.claim()
    for _ in range(4):
        ends = [End(held.fence, Reason.SUCCEEDED)]
        _, (held,) = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
        assert rig.count("lease") == 1
    rig.finish(held)
    assert rig.count("outcome") == 5


def test_a_claim_of_many_takes_as_many_as_each_limit_allows_in_one_statement(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=5)
    limit(rig, "owner", max_gpus=4)
    rig.submit_many(4, gpus=2)
    rig.submit_many(9, gpus=1, owner="bob")
    worker = rig.worker(gpus=GPUS)
    worker.claim(0)
    rig.database.ran.clear()
    grants = worker.claim(count=12)
    owners = sorted(grant.owner for grant in grants)
    assert owners == ["ann", "ann", "bob", "bob", "bob"]
    assert [name for name, _ in rig.database.ran].count("finish_and_claim") == 1


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
    # Jobs that are under no limit are still granted.
    assert claimed_at_once(workers) == 8
    assert claimed_at_once(workers) == 0
    assert rig.count("ready") == 56


@pytest.mark.parametrize("what", ["queue", "owner"])
def test_a_worker_that_is_told_of_a_new_limit_claims_within_it(rig: Rig, what: str) -> None:
    rig.submit_many(64)
    workers = warm_workers(rig)
    with rig.listening() as heard:
        limit(rig, what, max_jobs=2)
        assert [Hint.read(hint).kind for hint in heard()] == ["ready"]
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


def test_a_claim_under_a_limit_does_not_wait_for_another_that_is_under_way(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=2)
    rig.submit_many(4)
    one, other = rig.worker("one"), rig.worker("other")
    with rig.uncommitted() as queue:
        assert len(queue.claim(one.lanes, one.free)) == 1
        assert len(other.claim(count=4)) == 1
    assert rig.count("lease") == 2


def test_slots_of_a_claim_that_does_not_commit_are_free_again(rig: Rig) -> None:
    limit(rig, "owner", max_jobs=1)
    rig.submit_many(2)
    worker = rig.worker()
    with suppress(Undone), rig.uncommitted() as queue:
        assert len(queue.claim(worker.lanes, worker.free)) == 1
        raise Undone
    assert len(worker.claim(count=2)) == 1


class Undone(Exception):
    """Rolls a transaction back."""


@pytest.mark.parametrize("most", [3, 0])
def test_a_new_limit_counts_what_runs_already_even_if_its_claim_is_under_way(
    rig: Rig, most: int
) -> None:
    rig.submit_many(6)
    early, worker = rig.worker("early").claim(count=2), rig.worker("late")
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            assert len(queue.claim(worker.lanes, worker.free)) == 1
            limited = pool.submit(limit, rig, "queue", max_jobs=most)
            rig.wait_until_blocked()
        limited.result(timeout=120)
    assert worker.claim(count=3) == []
    assert rig.row("SELECT count(job_id) AS held FROM slot") == {"held": 3}
    rig.finish(early[0])
    assert len(worker.claim(count=3)) == (1 if most else 0)


def test_a_lowered_limit_holds_while_what_runs_above_it_ends_in_any_order(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=5)
    rig.submit_many(9)
    worker = rig.worker()
    held = worker.claim(count=5)
    limit(rig, "queue", max_jobs=3)
    # The oldest two end first, so that the places of the newest are above the limit.
    for grant in held[:2]:
        rig.finish(grant)
        assert worker.claim(count=5) == []
    rig.finish(held[2])
    assert len(worker.claim(count=5)) == 1
    for grant in held[3:]:
        rig.finish(grant)
    assert len(worker.claim(count=5)) == 2
    assert rig.count("lease") == 3


def test_a_sweeper_mends_slots_that_do_not_agree_with_what_runs(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=2)
    rig.submit_many(4)
    worker = rig.worker()
    worker.claim(count=2)
    # By hand, which leaves the slot.
    rig.rows("DELETE FROM lease WHERE job_id = (SELECT min(job_id) FROM lease)")
    assert worker.claim(count=2) == []
    tick = Tick(rig.queue)
    tick.run()
    assert len(worker.claim(count=2)) == 1
    rig.rows("UPDATE slot SET job_id = NULL")
    Tick(rig.queue).run()
    assert worker.claim(count=2) == []


def test_an_upgrade_makes_the_slots_of_the_limits_that_it_finds(rig: Rig) -> None:
    limit(rig, "queue", max_jobs=3)
    limit(rig, "owner", max_gpus=4)
    rig.submit_many(2, gpus=2)
    rig.worker(gpus=GPUS).claim(count=1)
    before = rig.rows("SELECT * FROM slot ORDER BY kind, name, n")
    rig.rows("DELETE FROM slot")
    upgrade(rig.url)
    assert rig.rows("SELECT * FROM slot ORDER BY kind, name, n") == before
    assert len(before) == 7


def test_limits_set_at_the_same_time_are_both_known_to_the_lanes(rig: Rig) -> None:
    limit(rig, "owner", max_jobs=5)
    rig.submit()
    lanes = {"queue": "default", "owners": []}
    changed = {"max_jobs": 0, "max_gpus": None}
    of_queue = {**unset(), "queue": "default", "given": Jsonb(changed), "actor": "user:root"}
    with ThreadPoolExecutor(1) as pool:
        with rig.database.transaction() as connection:
            run(connection, "set_queue", of_queue)
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
    rig.admin.set_queue("default", {"max_jobs": 1, "max_gpus": 2})
    rig.admin.limit_owner("ann", OwnerSettings(max_gpus=4, weight=3, approve_cost=9))
    rig.admin.set_queue("default", {"paused": True})
    rig.admin.set_queue("default", {"paused": False})
    told = rig.rows("SELECT actor, action, detail FROM event ORDER BY id")
    limited = {"name": "default", "max_jobs": 1, "max_gpus": 2}
    limited |= {"preemption": "never", "preempts_after_s": 60, "most_preempted": 4}
    limited |= {"guaranteed_gpus": None}
    assert {row["actor"] for row in told} == {"user:root"}
    assert [(row["action"], row["detail"]) for row in told] == [
        ("queue set", {**limited, "paused": False}),
        (
            "owner quota set",
            {
                "owner": "ann",
                "max_jobs": None,
                "max_gpus": 4,
                "weight": 3,
                "approve_gpu_hours": None,
                "approve_cost": 9,
                "gpu_hours_per_month": None,
                "cost_per_month": None,
                "when_spent": "hold",
                "guaranteed_gpus": None,
            },
        ),
        ("queue set", {**limited, "paused": True}),
        ("queue set", {**limited, "paused": False}),
    ]


def slots(rig: Rig) -> dict[str, int]:
    return {
        row["name"]: row["taken"]
        for row in rig.rows("SELECT name, count(job_id) AS taken FROM slot GROUP BY name")
    }


def test_a_queue_without_jobs_is_removed_and_new_ones_begin_as_an_admin_says(rig: Rig) -> None:
    rig.admin.set_queue("night", {"max_gpus": 2})
    job = rig.submit(queue="nihgt")
    with pytest.raises(QueueInUse, match="1 job is in the queue nihgt"):
        rig.admin.remove_queue("nihgt")
    worker = rig.worker()
    (grant,) = worker.claim()
    rig.finish(grant)
    ann = Caller("ann", Role.SUBMITTER, "user:ann")
    Service(ann, lambda: rig.database, None).delete([job])  # type: ignore[arg-type] # it needs no store
    for queue in ("nihgt", "night"):
        rig.admin.remove_queue(queue)
    assert (slots(rig), rig.admin.queues(), rig.count("lane")) == ({}, [], 0)
    with pytest.raises(QueueNotFound):
        rig.admin.remove_queue("night")
    rig.admin.set_queue("*", {"paused": True})
    # Whoever remembers the lane makes it anew, with its queue.
    waits = rig.submit(queue="nihgt")
    assert explain(rig.database, waits).limits[0].code == "queue_paused"
    assert worker.claim() == []


def test_a_limit_of_a_team_counts_all_its_owners_as_they_come_and_go(rig: Rig) -> None:
    rig.admin.set_team("nlp", TeamChanges(join=["ann", "ben"], max_jobs=2))
    worker = rig.worker(gpus=GPUS)
    for owner in ("ann", "ann", "ben", "cleo", "cleo"):
        rig.submit(owner=owner)
    assert [grant.owner for grant in worker.claim(count=9)].count("cleo") == 2
    assert (slots(rig), len(worker.claim(count=9))) == ({"nlp": 2}, 0)
    # Who joins brings what runs.
    rig.admin.set_team("nlp", TeamChanges(join=["cleo"]))
    assert slots(rig) == {"nlp": 4}
    rig.admin.set_team("nlp", TeamChanges(leave=["ann"]))
    rig.submit(owner="ann")
    taken = {grant.owner for grant in worker.claim(count=9)}
    assert "ann" in taken
    rig.admin.remove_team("nlp")
    assert (slots(rig), rig.count("lane WHERE limited")) == ({}, 0)


def test_the_first_job_of_an_owner_is_under_the_limit_of_the_team(rig: Rig) -> None:
    rig.admin.set_team("nlp", TeamChanges(join=["dan"], max_gpus=1))
    jobs = rig.submit_many(2, owner="dan", gpus=1)
    assert len(rig.worker(gpus=GPUS).claim(count=9)) == 1
    explanation = explain(rig.database, jobs[-1])
    assert [limit.code for limit in explanation.limits] == ["team_gpus"]
    assert explanation.remedies[0].command == "forge queue limit --team nlp --gpus 2"

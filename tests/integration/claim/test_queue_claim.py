"""Claiming: the best job first, to one worker only, as many as fit."""

from __future__ import annotations

from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, State
from forge_schema.model.worker import Capacity
from forge_schema.queue import claim
from forge_schema.queue.lanes import Lanes
from support.at_once import at_once
from support.queue.rig import Worker, spec

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig

LONG_S = 3600


def ids(grants: list[Grant]) -> list[int]:
    return [grant.fence.job_id for grant in grants]


def test_a_grant_says_all_that_a_worker_needs(rig: Rig) -> None:
    job_id = rig.submit(
        name="train",
        priority=3,
        command=["python", "train.py"],
        env={"A": "1"},
        bundle_digest="ab" * 32,
        timeout_s=60,
    )
    worker = rig.worker()
    grant = worker.claim_one()
    assert (grant.fence.job_id, grant.attempt, grant.name, grant.owner) == (
        job_id,
        1,
        "train",
        "ann",
    )
    assert (grant.priority, grant.bundle_digest, grant.timeout_s) == (3, "ab" * 32, 60)
    assert (grant.spec["command"], grant.spec["env"]) == (["python", "train.py"], {"A": "1"})
    lease = rig.row("SELECT * FROM lease")
    assert (lease["token"], lease["nonce"]) == (grant.fence.token, grant.fence.nonce)
    assert (lease["worker_id"], lease["phase"]) == (worker.id, Phase.CLAIMED)
    assert lease["expires_at"] - rig.clock.now == rig.queue.ttl
    assert rig.places(job_id) == ["lease"]


def test_only_a_first_attempt_has_surely_no_checkpoint(rig: Rig) -> None:
    rig.submit()
    worker = rig.worker()
    first = worker.claim_one()
    rig.queue.release(first.fence)
    assert (first.resumes, worker.claim_one().resumes) == (False, True)


def test_the_highest_priority_goes_first_then_the_oldest(rig: Rig) -> None:
    low, first, second, high = (rig.submit(priority=p) for p in (-5, 0, 0, 7))
    worker = rig.worker()
    assert [worker.claim_one().fence.job_id for _ in range(4)] == [high, first, second, low]


def test_priority_goes_before_lane_owner_and_batch(rig: Rig) -> None:
    wanted = {
        (-p, rig.submit(priority=p, owner=owner, cpus=cpus))
        for p in (3, -3, 0, 1)
        for owner in ("ann", "bob")
        for cpus in (1, 2)
    }
    grants = rig.worker().claim(count=16)
    assert [(-g.priority, g.fence.job_id) for g in grants] == sorted(wanted)


def test_a_batch_comes_best_first_whatever_the_order_of_its_rows(rig: Rig) -> None:
    specs = [spec(priority=n * 7 % 100) for n in range(100)]
    rig.queue.submit(specs)
    priorities = [grant.priority for grant in rig.worker().claim(count=100)]
    assert priorities == sorted(priorities, reverse=True)
    assert len(priorities) == 100


def test_an_empty_queue_grants_nothing(rig: Rig) -> None:
    worker = rig.worker()
    assert worker.claim() == []
    rig.finish(_claimed(rig, worker))
    assert worker.claim(count=5) == []


def test_a_worker_that_is_not_registered_claims_nothing(rig: Rig) -> None:
    rig.submit()
    lanes = Lanes(rig.database, 999)
    assert rig.queue.claim(lanes, Capacity(8, 8, 8)) == []


@pytest.mark.parametrize(
    ("free", "granted"),
    [
        (Capacity(4, 100, 100), 2),
        (Capacity(100, 60, 100), 2),
        (Capacity(100, 59, 100), 1),
        (Capacity(100, 100, 50), 2),
        (Capacity(2, 30, 25), 1),
        (Capacity(1.9, 100, 100), 0),
        (Capacity(100, 29, 100), 0),
        (Capacity(-3, 100, 100), 0),
        (Capacity(100, 300, 250), 10),
    ],
)
def test_no_more_is_claimed_than_fits(rig: Rig, free: Capacity, granted: int) -> None:
    rig.submit_many(20, cpus=2, memory_mb=30, disk_mb=25)
    worker = rig.worker(gpus=[])
    assert len(rig.queue.claim(worker.lanes, free, count=10)) == granted


def test_what_fits_is_claimed_past_what_does_not(rig: Rig) -> None:
    rig.submit(priority=9, cpus=64)
    small = rig.submit(cpus=1)
    worker = rig.worker()
    assert ids(rig.queue.claim(worker.lanes, Capacity(8, 8, 8))) == [small]


def test_a_batch_of_mixed_sizes_fits_together(rig: Rig) -> None:
    for n in range(10):
        rig.submit(cpus=1 + n % 3)
    worker = rig.worker()
    grants = rig.queue.claim(worker.lanes, Capacity(8, 100, 100), count=10)
    assert 0 < sum(grant.spec["resources"]["cpus"] for grant in grants) <= 8


def test_a_job_that_another_is_claiming_is_skipped(rig: Rig) -> None:
    first, second = rig.submit_many(2)
    one, other = rig.worker("one"), rig.worker("other")
    with rig.uncommitted() as queue:
        assert ids(queue.claim(one.lanes, one.free)) == [first]
        assert ids(other.claim()) == [second]
        assert other.claim() == []
    assert [rig.state(job) for job in (first, second)] == [State.RUNNING] * 2


def test_a_claim_finds_what_lies_behind_all_that_others_are_claiming(rig: Rig) -> None:
    job_ids = rig.submit_many(101)
    one, other = rig.worker("one"), rig.worker("other")
    with rig.uncommitted() as queue:
        assert ids(queue.claim(one.lanes, one.free, count=100)) == job_ids[:100]
        assert ids(other.claim(count=5)) == job_ids[100:]


def test_a_claim_whose_connection_breaks_leaves_the_job_ready(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    with pytest.raises(psycopg.OperationalError):
        _claim_and_break(rig, worker)
    assert rig.places(job_id) == ["ready"]
    assert worker.claim_one().attempt == 1


def test_eight_claimers_at_once_get_every_job_once(rig: Rig) -> None:
    wanted = rig.submit_many(200)
    workers = [rig.worker(f"w{n}") for n in range(8)]

    def drain(worker: Worker) -> list[int]:
        taken: list[int] = []
        while rig.count("ready"):
            taken += ids(worker.claim(count=3))
        return taken

    taken = at_once(*[partial(drain, worker) for worker in workers])
    assert sorted(chain.from_iterable(taken)) == wanted
    assert rig.count("lease") == 200


def test_tokens_rise_with_every_change_of_ownership(rig: Rig) -> None:
    rig.submit_many(3)
    worker = rig.worker()
    tokens = []
    for _ in range(6):
        grant = worker.claim_one()
        tokens.append(grant.fence.token)
        rig.finish(grant, Reason.DRAINED)
    assert tokens == sorted(set(tokens))


def test_a_job_given_back_behind_the_floor_is_found_when_nothing_else_is_left(rig: Rig) -> None:
    first, second = rig.submit_many(2)
    worker = rig.worker()
    lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S)
    (grant,) = rig.queue.claim(lanes, worker.free)
    rig.queue.release(grant.fence)
    taken = [ids(rig.queue.claim(lanes, worker.free)) for _ in range(2)]
    assert sorted(taken) == [[first], [second]]
    assert rig.queue.claim(lanes, worker.free) == []


def test_a_job_of_its_own_that_comes_back_is_next_however_slow_looks_are(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = count(step=1000)
    monkeypatch.setattr(claim, "monotonic", lambda: next(readings))
    first, second, third = rig.submit_many(3)
    worker = rig.worker()
    lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S)
    exchange = partial(rig.queue.finish_and_claim, lanes=lanes, free=worker.free)
    (grant,) = rig.queue.claim(lanes, worker.free)
    for _ in range(3):
        (grant,) = exchange([End(grant.fence, Reason.PREEMPTED)])[1]
        assert grant.job_id == first
    # A hint that another worker's job came back is no reason for another slow look.
    rig.queue.release(grant.fence)
    lanes.came_back()
    taken = [ids(rig.queue.claim(lanes, worker.free)) for _ in range(3)]
    assert taken == [[second], [third], [first]]


def test_a_higher_priority_is_seen_in_front_of_the_watermark(rig: Rig) -> None:
    rig.submit_many(3, priority=0)
    worker = rig.worker()
    lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S)
    rig.queue.claim(lanes, worker.free)
    urgent = rig.submit(priority=5)
    assert ids(rig.queue.claim(lanes, worker.free)) == [urgent]


def test_a_new_lane_is_seen_once_the_old_ones_are_forgotten(rig: Rig) -> None:
    worker = rig.worker()
    lanes = Lanes(rig.database, worker.id, refresh_s=LONG_S)
    assert rig.queue.claim(lanes, worker.free) == []
    job_id = rig.submit()
    assert rig.queue.claim(lanes, worker.free) == []
    lanes.forget()
    assert ids(rig.queue.claim(lanes, worker.free)) == [job_id]


def _claimed(rig: Rig, worker: Worker) -> Grant:
    rig.submit()
    return worker.claim_one()


def _claim_and_break(rig: Rig, worker: Worker) -> None:
    with rig.uncommitted() as queue:
        assert len(queue.claim(worker.lanes, worker.free)) == 1
        rig.break_connections()

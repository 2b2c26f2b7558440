"""Waiting jobs of a higher priority have running ones leave, where their queue allows it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.admin import QueueSettings
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, Role, Standing, State
from forge_schema.read.reports import Reports
from forge_schema.service.admin import Admin
from forge_schema.service.caller import Caller
from forge_schema.service.changing import Change
from forge_schema.sweeper.tick import Tick
from support.at_once import at_once
from support.gangs.drafts import fresh, late, pass_time
from support.gangs.runs import formed, gang

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker


@pytest.fixture
def preempting(rig: Rig) -> Rig:
    rig.admin.set_queue("default", {"preemption": "higher-priority", "most_preempted": 2})
    return rig


def running(rig: Rig, worker: Worker, count: int = 1, **changes: Any) -> list[Grant]:  # noqa: ANN401  fields of all types
    """Submit jobs and have a worker run them."""
    rig.submit_many(count, **changes)
    grants = worker.claim(count)
    for grant in grants:
        rig.queue.report(grant.fence, Phase.RUNNING)
    return grants


def displaced(rig: Rig) -> list[int]:
    """Sweep, and return the jobs that were asked to leave so far."""
    rig.clock.advance(61)
    rig.tick.displace()
    return asked(rig)


def asked(rig: Rig) -> list[int]:
    rows = rig.rows("SELECT DISTINCT job_id FROM lease WHERE asked = 'preempted' ORDER BY job_id")
    return [row["job_id"] for row in rows]


def saved(rig: Rig, grant: Grant) -> None:
    assert rig.records.add_checkpoint(grant.fence, CheckpointRecord(0, "key", 1, 1))


def test_the_job_that_loses_least_leaves_and_the_urgent_one_takes_its_place(
    preempting: Rig,
) -> None:
    rig, worker = preempting, preempting.worker(cpus=2)
    first, second = running(rig, worker, 2)
    rig.clock.advance(600)
    saved(rig, first)
    urgent = rig.submit(priority=5)
    assert displaced(rig) == [first.job_id]
    assert worker.renew(first, second).standings[first.fence] is Standing.PREEMPTED
    event = rig.jobs.events(first.job_id)[-1]
    assert (event["action"], event["detail"]["by"]) == ("displaced", urgent)
    assert f"job {first.job_id} makes room for it" in explain(rig.database, urgent).text
    asked = explain(rig.database, first.job_id).text
    assert f"it leaves for job {urgent} of priority 5" in asked
    # Nobody else leaves while it saves its state, and whoever sweeps again asks nobody twice.
    assert displaced(rig) == [first.job_id]
    rig.finish(first, Reason.PREEMPTED)
    worker.free = type(worker.free)(1, 1000, 1000)
    assert [grant.job_id for grant in worker.claim(5)] == [urgent]
    row = rig.row("SELECT failures, losses FROM ready WHERE job_id = %s", first.job_id)
    assert row == {"failures": 0, "losses": 0}
    assert f"it left for job {urgent} of priority 5" in explain(rig.database, first.job_id).text
    (lost,) = Reports(rig.database).rows("lost_time")
    assert (lost["displaced_by"], lost["reason"]) == (urgent, "preempted")
    # It was displaced, and so displaces nobody, whatever priority it is given.
    Change(rig.database, "user:ann", first.job_id, {"priority": 100}).make()
    assert displaced(rig) == []


@pytest.mark.parametrize(
    ("job", "queue"),
    [
        ({"priority": 0}, {}),
        ({"priority": 5, "queue": "other"}, {}),
        ({"priority": 5, "cpus": 3}, {}),
        ({"priority": 5, "labels": {"zone": "eu"}}, {}),
        ({"priority": 5}, {"preemption": "never"}),
        ({"priority": 5}, {"preempts_after_s": 3600}),
        ({"priority": 5, "cpus": 2}, {"most_preempted": 1}),
    ],
)
def test_nobody_leaves_without_need_or_in_vain(
    preempting: Rig, job: dict[str, Any], queue: dict[str, Any]
) -> None:
    rig, worker = preempting, preempting.worker(cpus=2)
    running(rig, worker, 2)
    rig.admin.set_queue("default", queue)
    rig.submit(**job)
    assert displaced(rig) == []


def test_only_those_leave_who_give_the_room(preempting: Rig) -> None:
    rig, worker = preempting, preempting.worker(cpus=4)
    (large,) = running(rig, worker, cpus=3)
    (small,) = running(rig, worker)
    saved(rig, small)
    rig.submit(priority=5, cpus=3)
    assert displaced(rig) == [large.job_id]


def test_a_gang_leaves_as_a_whole(preempting: Rig) -> None:
    rig = preempting
    run = formed(rig, gang(rig, 2), [rig.worker(f"gpu-{n}", cpus=1) for n in range(2)])
    run.start()
    rig.submit(priority=5)
    assert displaced(rig) == [run.job_id]
    assert [run.standing(rank) for rank in range(2)] == [Standing.PREEMPTED] * 2


def test_a_gang_that_workers_are_kept_for_has_others_leave_on_all_its_machines(
    preempting: Rig,
) -> None:
    rig = preempting
    rig.submit_many(3)
    workers = [fresh(rig, f"w{n}", cpus=1) for n in range(3)]
    for worker in workers:
        assert worker.look()
    rig.clock.advance(60)
    saved(rig, workers[1].grants[0])
    urgent = late(rig, priority=5)
    pass_time(rig, 0)
    rig.tick.displace()
    left = asked(rig)
    assert len(left) == 2
    assert workers[1].grants[0].job_id in left
    assert "make room for it" in explain(rig.database, urgent).text
    freed = [worker for worker in workers if worker.grants[0].job_id in left]
    rig.queue.finish([End(worker.grants.pop().fence, Reason.PREEMPTED) for worker in freed])
    # Kept for the gang, so that those who left do not come back.
    assert freed[0].look() == []
    freed[1].look()
    assert rig.places(urgent) == ["lease"] * 2


def test_a_gang_with_too_little_room_displaces_nobody(preempting: Rig) -> None:
    rig = preempting
    rig.submit(priority=9)
    rig.submit()
    for name in ("one", "two"):
        assert fresh(rig, name, cpus=1).look()
    rig.clock.advance(60)
    late(rig, priority=5)
    rig.tick.displace()
    assert asked(rig) == []


def test_jobs_behind_one_that_was_displaced_still_displace_others(preempting: Rig) -> None:
    rig = preempting
    (low,) = running(rig, rig.worker("one", cpus=1))
    eu = rig.worker("two", cpus=1, labels={"zone": "eu"})
    (first,) = running(rig, eu, priority=3)
    rig.submit(priority=5, labels={"zone": "eu"})
    assert displaced(rig) == [first.job_id]
    rig.submit(priority=3)
    rig.finish(first, Reason.PREEMPTED)
    assert len(eu.claim()) == 1
    assert displaced(rig) == [low.job_id]


def test_no_room_is_made_while_the_waiting_job_avoids_it(preempting: Rig) -> None:
    rig = preempting
    one, two = (rig.worker(name, cpus=1) for name in ("one", "two"))
    running(rig, two, priority=5)
    (urgent,) = running(rig, one, priority=5, max_failures=3, backoff_s=0)
    rig.finish(urgent, Reason.EXIT_CODE)
    running(rig, one)
    rig.admin.set_queue("default", {"preempts_after_s": 0})
    rig.clock.advance(6)
    assert rig.tick.displace() == 0
    rig.clock.advance(10)
    assert rig.tick.displace() == 1


def test_making_room_costs_no_preemption_however_few_a_job_may_have(preempting: Rig) -> None:
    rig, worker = preempting, preempting.worker(cpus=1)
    (low,) = running(rig, worker, max_preemptions=0)
    rig.submit(priority=5)
    assert displaced(rig) == [low.job_id]
    assert rig.finish(low, Reason.PREEMPTED).state is State.READY


def test_an_end_at_the_same_moment_sees_that_it_makes_room(preempting: Rig) -> None:
    rig, worker = preempting, preempting.worker(cpus=1)
    (low,) = running(rig, worker, max_preemptions=0)
    rig.submit(priority=5)
    rig.clock.advance(61)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            Tick(queue).displace()
            late = pool.submit(rig.finish, low, Reason.PREEMPTED)
            rig.wait_until_blocked()
        assert late.result(timeout=120).state is State.READY


def test_slots_are_kept_for_the_waiting_job_until_all_have_left(preempting: Rig) -> None:
    rig = preempting
    gpus = [{"name": "NVIDIA H100", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(8)]
    worker, other = (rig.worker(name, cpus=8, gpus=gpus) for name in ("one", "two"))
    rig.admin.set_queue("default", {"max_gpus": 2})
    first, second = running(rig, worker, 2, gpus=1)
    urgent = rig.submit(priority=5, gpus=2)
    low = rig.submit(gpus=1)
    assert displaced(rig) == [first.job_id, second.job_id]
    assert f"are kept for job {urgent}" in explain(rig.database, low).text
    rig.finish(first, Reason.PREEMPTED)
    assert other.claim() == []
    rig.clock.advance(61)
    assert rig.tick.displace() == 0
    assert other.claim() == []
    rig.finish(second, Reason.PREEMPTED)
    assert [grant.job_id for grant in worker.claim(5)] == [urgent]
    # When it has its place, or cannot start, the others go on.
    rig.admin.set_queue("default", {"max_gpus": 3})
    assert other.claim() == []
    rig.tick.displace()
    assert len(other.claim()) == 1


def test_jobs_under_a_full_limit_leave_for_its_slot(preempting: Rig) -> None:
    rig, worker = preempting, preempting.worker(cpus=8)
    rig.admin.set_queue("default", {"max_jobs": 2})
    first, _ = running(rig, worker, 2)
    saved(rig, first)
    urgent = rig.submit(priority=5)
    assert displaced(rig) == [first.job_id]
    rig.finish(first, Reason.PREEMPTED)
    assert worker.claim_one().job_id == urgent


def test_sweepers_at_the_same_moment_displace_no_more_than_one_would(preempting: Rig) -> None:
    rig, worker = preempting, preempting.worker(cpus=6)
    running(rig, worker, 6)
    rig.submit(priority=5)
    rig.clock.advance(61)
    at_once(*[rig.tick.displace] * 4)
    assert len(displaced(rig)) == 1


def test_a_client_that_does_not_know_of_preemption_keeps_it(preempting: Rig) -> None:
    admin = Admin(Caller("root", Role.ADMIN, "user:root"), lambda: preempting.database)
    admin.set_queue("default", QueueSettings(max_jobs=3))
    (queue,) = admin.queues()
    assert (queue.max_jobs, queue.preemption, queue.most_preempted) == (3, "higher-priority", 2)

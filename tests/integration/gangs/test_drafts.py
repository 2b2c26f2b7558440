"""Machines are kept for a gang that smaller jobs would starve, for a bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Command
from forge_schema.queue.reservation import PATIENCE_S
from forge_schema.sweeper.tick import TURN
from support.gangs.drafts import drafted, fresh, late, pass_time, turn_over

if TYPE_CHECKING:
    from support.gangs.gang_workers import GangWorker
    from support.queue.rig import Rig

TURN_S = TURN.total_seconds()


def busy(rig: Rig, count: int, jobs: int = 1) -> list[GangWorker]:
    """Return workers that are full with so many of the singles that wait."""
    workers = [fresh(rig, f"w{n}", cpus=jobs) for n in range(count)]
    for worker in workers:
        for n in range(jobs):
            assert worker.look(cpus=jobs - n)
    return workers


def test_a_gang_starts_among_an_endless_stream_of_singles_and_they_go_on_after_it(
    rig: Rig,
) -> None:
    rig.submit_many(2)
    workers = busy(rig, 2)
    gang, at = rig.submit(nodes=2), 0.0
    singles = 0
    while rig.places(gang) == ["ready"]:
        rig.submit_many(2)
        at += 2
        assert at <= PATIENCE_S + 6
        pass_time(rig, 2)
        for worker in workers:
            if worker.grants:
                turn_over(worker)
                singles += len(worker.grants)
            else:
                worker.look()
    assert singles >= PATIENCE_S / 2
    granted = [grant for worker in workers for grant in worker.look()]
    assert [(grant.job_id, grant.nodes) for grant in granted] == [(gang, 2)] * 2
    pass_time(rig, 2)
    assert (drafted(rig), rig.count("forming")) == ({}, 0)
    rig.rows("DELETE FROM lease WHERE nodes > 1")
    for worker in workers:
        worker.grants = []
        assert [grant.nodes for grant in worker.look()] == [1]


def test_a_gangs_patience_begins_when_older_singles_have_started(rig: Rig) -> None:
    rig.submit_many(4)
    workers = busy(rig, 2)
    gang = rig.submit(nodes=2)
    for _ in range(3):
        pass_time(rig, PATIENCE_S)
    assert rig.row("SELECT passed_at FROM ready WHERE job_id = %s", gang)["passed_at"] is None
    for worker in workers:
        turn_over(worker)
    pass_time(rig, 0)
    assert drafted(rig) == {}
    pass_time(rig, PATIENCE_S)
    assert drafted(rig) == dict.fromkeys((worker.id for worker in workers), gang)


def test_an_older_single_that_only_another_worker_can_run_holds_no_gang_back(rig: Rig) -> None:
    rig.submit_many(3)
    workers = busy(rig, 2)
    assert fresh(rig, "moon", labels={"zone": "moon"}).look()
    rig.submit(labels={"zone": "moon"})
    gang = late(rig)
    assert {worker.id for worker in workers} <= drafted(rig).keys()
    assert {*drafted(rig).values()} == {gang}


def test_a_drafted_worker_takes_jobs_beside_the_gang_and_urgent_ones(rig: Rig) -> None:
    rig.submit_many(2, cpus=3)
    one, two = (fresh(rig, name, cpus=4) for name in ("one", "two"))
    assert one.look()
    assert two.look()
    late(rig, cpus=2)
    rig.submit_many(3, cpus=2)
    turn_over(one)
    # Two CPUs are free beside the gang's.
    (beside,) = one.grants
    assert one.look(cpus=2) == []
    urgent = rig.submit(cpus=2, priority=1)
    (grant,) = one.look(cpus=2)
    assert grant.job_id == urgent != beside.job_id


def test_a_gang_that_too_few_workers_could_run_drafts_no_worker(rig: Rig) -> None:
    rig.submit_many(2)
    workers = busy(rig, 2)
    rig.submit(nodes=3)
    gang = late(rig)
    rig.submit(nodes=2, labels={"zone": "moon"})
    pass_time(rig, PATIENCE_S)
    pass_time(rig, PATIENCE_S)
    assert drafted(rig) == dict.fromkeys((worker.id for worker in workers), gang)


def test_one_gang_of_a_pool_has_a_turn_the_first_by_priority(rig: Rig) -> None:
    rig.submit_many(8)
    workers = busy(rig, 4, jobs=2)
    rig.submit(nodes=2, cpus=2)
    first = rig.submit(nodes=2, cpus=2, priority=1)
    pass_time(rig, 0)
    pass_time(rig, PATIENCE_S)
    found = drafted(rig)
    assert [*found.values()] == [first] * 2
    assert {*found} < {worker.id for worker in workers}


def test_other_gangs_leave_drafted_workers_alone_unless_they_are_urgent(rig: Rig) -> None:
    rig.submit_many(2)
    one, two = busy(rig, 2)
    gang = late(rig)
    turn_over(one)
    assert one.look() == []
    three, four = (fresh(rig, name) for name in ("three", "four"))
    # Idle workers would form the gang: these two cannot be reached.
    rig.rows("UPDATE worker SET address = NULL WHERE id IN (%s, %s)", three.id, four.id)
    other = rig.submit(nodes=2, memory_mb=2)
    rig.rows("UPDATE worker SET address = '10.0.0.2' WHERE id = %s", three.id)
    rig.rows("UPDATE ready SET nice = 1 WHERE job_id = %s", gang)
    rig.rows("UPDATE forming SET nice = 1")
    rig.rows("UPDATE draft SET nice = 1")
    assert three.look() == []
    assert rig.places(other) == ["lease"] * 2
    assert {row["worker_id"] for row in rig.rows("SELECT * FROM lease WHERE nodes > 1")} == {
        one.id,
        three.id,
    }
    assert two.grants


def test_after_its_turn_a_gang_rests_as_long_and_its_next_turn_is_twice_as_long(rig: Rig) -> None:
    rig.submit_many(2)
    one, _ = busy(rig, 2)
    gang = late(rig)
    turn_over(one)
    rig.submit()
    assert one.look() == []
    for turns in (1, 2, 3):
        length = TURN_S * 2 ** (turns - 1)
        pass_time(rig, length - 1)
        assert len(drafted(rig)) == 2
        pass_time(rig, 1)
        assert drafted(rig) == {}
        if turns == 1:
            assert [grant.nodes for grant in one.look()] == [1]
        pass_time(rig, length - 1)
        assert drafted(rig) == {}
        pass_time(rig, 1)
        assert [*drafted(rig).values()] == [gang] * 2
        assert rig.row("SELECT turns FROM forming")["turns"] == turns + 1


def test_while_one_gang_rests_another_has_its_turn(rig: Rig) -> None:
    rig.submit_many(2)
    busy(rig, 2)
    first = late(rig)
    second = late(rig)
    assert {*drafted(rig).values()} == {first}
    pass_time(rig, TURN_S)
    pass_time(rig, 0)
    assert {*drafted(rig).values()} == {second}


@pytest.mark.parametrize("how", ["drains", "is offline", "is removed"])
def test_a_drafted_worker_that_leaves_is_replaced(rig: Rig, how: str) -> None:
    rig.submit_many(6)
    workers = busy(rig, 3, jobs=2)
    late(rig, cpus=2)
    (spare,) = {worker.id for worker in workers} - {*drafted(rig)}
    leaving = min(drafted(rig))
    if how == "drains":
        rig.registry.command(leaving, Command.DRAIN)
    elif how == "is offline":
        rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", leaving)
    else:
        rig.rows("DELETE FROM worker WHERE id = %s", leaving)
    pass_time(rig, 2)
    assert len(drafted(rig)) == 2
    assert spare in drafted(rig)
    assert leaving not in drafted(rig)


def test_a_cancelled_gang_and_a_paused_queue_let_the_workers_go(rig: Rig) -> None:
    rig.submit_many(2)
    busy(rig, 2)
    gang = late(rig)
    rig.admin.set_queue("default", {"paused": True})
    pass_time(rig, 2)
    assert drafted(rig) == {}
    rig.admin.set_queue("default", {"paused": False})
    pass_time(rig, 2)
    assert len(drafted(rig)) == 2
    rig.queue.cancel(gang)
    pass_time(rig, 2)
    assert (drafted(rig), rig.count("forming")) == ({}, 0)


def test_drafts_end_by_themselves_if_no_sweeper_ticks(rig: Rig) -> None:
    rig.submit_many(2)
    one, _ = busy(rig, 2)
    late(rig)
    rig.submit()
    turn_over(one)
    assert one.look() == []
    rig.clock.advance(TURN_S)
    assert [grant.nodes for grant in one.look()] == [1]


def test_workers_whose_jobs_end_soon_are_drafted_in_one_place(rig: Rig) -> None:
    rig.submit_many(12)
    zones = ["eu", "us", "eu", "us", "us", "eu"]
    workers = [fresh(rig, f"w{n}", cpus=2, labels={"zone": zone}) for n, zone in enumerate(zones)]
    for worker in workers:
        assert worker.look()
        assert worker.look(cpus=1)
        rig.clock.advance(60)
    # One in the eu and two in the us are nearly done.
    soon = [workers[n].id for n in (0, 1, 4)]
    rig.rows("UPDATE lease SET progress = 0.99 WHERE worker_id = ANY(%s)", soon)
    late(rig, same="zone", cpus=2)
    assert {*drafted(rig)} == {*soon[1:]}


def test_more_workers_than_it_needs_are_drafted_where_each_runs_one_job(rig: Rig) -> None:
    rig.submit_many(40)
    workers = busy(rig, 40)
    gang = late(rig)
    assert len(drafted(rig)) == 32
    rig.submit_many(3)
    for worker in [worker for worker in workers if worker.id in drafted(rig)][:3]:
        turn_over(worker)
    # The first two that were free have it, and the others go on.
    assert {row["job_id"] for row in rig.rows("SELECT * FROM lease WHERE nodes > 1")} == {gang}
    pass_time(rig, 2)
    assert drafted(rig) == {}


def test_of_two_sweepers_one_drafts(rig: Rig) -> None:
    rig.submit_many(2)
    busy(rig, 2)
    rig.submit(nodes=2)
    pass_time(rig, 0)
    with rig.database.transaction() as connection:
        connection.execute("SELECT FROM sweeper FOR UPDATE")
        pass_time(rig, PATIENCE_S)
        assert drafted(rig) == {}
    pass_time(rig, 0)
    assert len(drafted(rig)) == 2

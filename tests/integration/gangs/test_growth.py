"""A run ends to continue with more machines, once some have been idle for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, Standing, State
from forge_schema.model.worker import Gpu
from forge_schema.queue.lanes import Lanes
from forge_schema.sweeper.tick import GROWS_AFTER, SPARE, TURN
from forge_schema.wake import Hint
from forge_worker.queue.gateway import SqlGateway
from support.gangs.drafts import drafted
from support.gangs.elastic import begin, end_run, fences, formed, members, pass_time, spent
from support.gangs.gang_workers import GangWorker, asleep, gang_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.rig import Rig

GPU: dict[str, Any] = {"gpus": [Gpu("GPU-1", "H100", 80_000)], "accelerator": "cuda"}
H100: dict[str, Any] = {"gpu_model": "H100", "vram_mb": 80_000, "gpus_in_all": 1}


def growing(rig: Rig) -> tuple[list[GangWorker], int]:
    """Return three workers, and a job that computes on the first two and may have four."""
    workers = asleep(rig, 2)
    job = formed(rig, workers, max_nodes=4)
    workers.append(gang_worker(rig, "spare"))
    workers[2].look()
    for worker in workers:
        # It reads its lanes anew with every claim.
        assert isinstance(worker.gateway, SqlGateway)
        worker.gateway._lanes = Lanes(rig.database, worker.id, refresh_s=-1)
    return workers, job


def test_a_run_whose_lease_is_just_being_renewed_grows_with_the_next_tick(rig: Rig) -> None:
    growing(rig)
    pass_time(rig, GROWS_AFTER.total_seconds() - 1)
    rig.clock.advance(1)
    with rig.database.transaction() as connection:
        connection.execute("SELECT FROM lease WHERE rank = 1 FOR UPDATE")
        assert rig.tick.grow() == 0
    assert rig.tick.grow() == 1


def test_a_run_grows_when_a_worker_has_been_idle_for_long(rig: Rig) -> None:
    workers, job = growing(rig)
    assert pass_time(rig, GROWS_AFTER.total_seconds() - 1) == 0
    assert pass_time(rig, 1) == 1
    everyone = dict.fromkeys((worker.id for worker in workers), job)
    assert drafted(rig) == everyone
    assert [rig.queue.report(one, Phase.RUNNING) for one in fences(rig, job)] == [
        Standing.ENDED
    ] * 2
    # The draft outlasts the end, and it is asked only once.
    assert pass_time(rig, 30) == 0
    assert drafted(rig) == everyone
    end_run(rig, job)
    assert rig.places(job) == ["ready"]
    with rig.listening() as heard:
        single = rig.submit(timeout_s=1)
        spare = workers[2].gateway
        assert isinstance(spare, SqlGateway)
        assert spare.wakes(Hint.read(heard()[-1]))
    # It keeps its room.
    assert workers[2].look() == []
    for worker in workers[:2]:
        worker.look()
    assert len(members(rig, job)) == 3
    assert {row["attempt"] for row in members(rig, job)} == {2}
    assert spent(rig, job) == [0, 0, 0]
    ended = rig.jobs.attempts(job)
    assert {(row["reason"], row["detail"]) for row in ended} == {
        ("run_ended", "to continue with 3 machines instead of 2")
    }
    pass_time(rig, 2)
    assert (drafted(rig), rig.count("forming"), rig.places(single)) == ({}, 0, ["ready"])
    asked = "SELECT detail FROM event WHERE action = 'asked to grow' AND job_id = %s"
    assert rig.row(asked, job)["detail"] == {"attempt": 1, "before": 2, "nodes": 3}


def test_each_growth_within_a_day_doubles_the_time_to_the_next(rig: Rig) -> None:
    workers, job = growing(rig)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 1
    end_run(rig, job)
    for worker in workers:
        worker.look()
    assert len(members(rig, job)) == 3
    begin(rig, job)
    gang_worker(rig, "fourth").look()
    assert pass_time(rig, 2 * GROWS_AFTER.total_seconds() - 1) == 0
    assert pass_time(rig, 1) == 1


def test_a_run_whose_new_machine_went_away_goes_on_with_those_that_it_had(rig: Rig) -> None:
    workers, job = growing(rig)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 1
    end_run(rig, job)
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", workers[2].id)
    for worker in workers[:2]:
        worker.look()
    assert [row["worker_id"] for row in members(rig, job)] == [one.id for one in workers[:2]]


def test_a_cancelled_run_that_was_to_grow_drafts_no_worker(rig: Rig) -> None:
    _, job = growing(rig)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 1
    assert rig.queue.cancel(job) is State.RUNNING
    end_run(rig, job, Reason.CANCELLED)
    assert rig.state(job) is State.CANCELLED
    pass_time(rig, 0)
    assert (drafted(rig), rig.count("forming")) == ({}, 0)


# What keeps a run from growing.
HINDRANCES: dict[str, Callable[[Rig, int], object]] = {
    "a job waits for the worker": lambda rig, _job: rig.submit(nodes=3),
    "no checkpoint": lambda rig, job: rig.rows("DELETE FROM checkpoint WHERE job_id = %s", job),
    "nearly done": lambda rig, job: rig.rows(
        "UPDATE lease SET progress = 0.95 WHERE job_id = %s", job
    ),
    "it is preempted": lambda rig, job: rig.queue.preempt(job),
    "just idle": lambda rig, _job: rig.rows("UPDATE idle SET since = since + %s", GROWS_AFTER),
    "the queue is paused": lambda rig, _job: rig.admin.set_queue("default", {"paused": True}),
    "a member has ended": lambda rig, job: rig.queue.finish(
        [End(fences(rig, job)[1], Reason.SUCCEEDED)]
    ),
    "it has its most": lambda rig, job: rig.rows(
        "UPDATE job SET spec = spec || '{\"max_nodes\": 2}' WHERE id = %s", job
    ),
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_run_does_not_grow(rig: Rig, hindrance: str) -> None:
    _, job = growing(rig)
    HINDRANCES[hindrance](rig, job)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 0
    assert drafted(rig) == {}


def test_a_run_grows_no_further_than_a_limit_on_gpus(rig: Rig) -> None:
    workers = [gang_worker(rig, f"w{n}", **GPU) for n in range(4)]
    rig.admin.set_queue("default", {"max_jobs": None, "max_gpus": 2})
    for worker in workers:
        worker.look(**H100)
    job = rig.submit(nodes=2, max_nodes=4, gpus=1)
    assert len(members(rig, job)) == 2
    begin(rig, job)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 0
    rig.admin.set_queue("default", {"max_jobs": None, "max_gpus": 3})
    assert pass_time(rig, 0) == 1
    assert len(drafted(rig)) == 3


def test_only_workers_with_the_same_label_are_added(rig: Rig) -> None:
    workers = [gang_worker(rig, f"w{n}", labels={"zone": "eu"}) for n in range(2)]
    for worker in workers:
        worker.look()
    job = rig.submit(nodes=2, max_nodes=4, same="zone")
    begin(rig, job)
    gang_worker(rig, "other", labels={"zone": "us"}).look()
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 0
    gang_worker(rig, "third", labels={"zone": "eu"}).look()
    assert pass_time(rig, SPARE.total_seconds()) == 1


def test_two_runs_of_a_pool_grow_one_after_the_other(rig: Rig) -> None:
    for zone in ("sun", "moon"):
        workers = [gang_worker(rig, f"{zone}{n}", labels={"zone": zone}) for n in range(3)]
        for worker in workers[:2]:
            worker.look()
        formed(rig, workers[:2], max_nodes=4, labels={"zone": zone})
        workers[2].look()
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 1
    assert len(drafted(rig)) == 3
    assert pass_time(rig, TURN.total_seconds()) == 0
    assert pass_time(rig, 60) == 1
    assert len(drafted(rig)) == 3


def test_a_growth_that_took_too_long_is_over(rig: Rig) -> None:
    _, job = growing(rig)
    assert pass_time(rig, GROWS_AFTER.total_seconds()) == 1
    pass_time(rig, TURN.total_seconds() + 60)
    assert drafted(rig) == {}
    end_run(rig, job)
    assert rig.places(job) == ["ready"]

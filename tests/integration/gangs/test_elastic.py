"""Gangs with a range of machines: each run has as many as are free, and its limits allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason, State
from forge_schema.model.worker import Gpu
from support.gangs.elastic import end_run, formed, members, pass_time, spent
from support.gangs.gang_workers import asleep, gang_worker

if TYPE_CHECKING:
    from support.queue.rig import Rig

GPU: dict[str, Any] = {"gpus": [Gpu("GPU-1", "H100", 80_000)], "accelerator": "cuda"}
H100: dict[str, Any] = {"gpu_model": "H100", "vram_mb": 80_000, "gpus_in_all": 1}


@pytest.mark.parametrize(("idle", "taken"), [(1, 0), (2, 2), (3, 3), (4, 4), (6, 4)])
def test_a_range_takes_what_is_idle_from_its_least_to_its_most(
    rig: Rig, idle: int, taken: int
) -> None:
    workers = asleep(rig, idle)
    job = rig.submit(nodes=2, max_nodes=4)
    assert len(members(rig, job)) == taken
    assert rig.count("idle") == idle - taken
    granted = [grant for worker in workers for grant in worker.look()]
    assert [grant.nodes for grant in granted] == [taken] * taken
    assert rig.state(job) is (State.RUNNING if taken else State.READY)


def test_a_worker_with_much_room_is_only_once_in_a_gang(rig: Rig) -> None:
    workers = [gang_worker(rig, f"w{n}", cpus=8, memory_mb=800, disk_mb=800) for n in range(2)]
    for worker in workers:
        worker.look()
    assert len(members(rig, rig.submit(nodes=2, max_nodes=8))) == 2


def test_a_range_takes_the_value_of_its_label_that_most_workers_have(rig: Rig) -> None:
    for n, zone in enumerate(("eu", "eu", "us", "us", "us", "moon")):
        gang_worker(rig, f"w{n}", labels={"zone": zone}).look()
    job = rig.submit(nodes=2, max_nodes=5, same="zone")
    zones = rig.rows(
        "SELECT labels ->> 'zone' AS zone FROM lease JOIN worker ON worker.id = worker_id"
        " WHERE job_id = %s",
        job,
    )
    assert [row["zone"] for row in zones] == ["us"] * 3


def test_a_range_takes_as_many_gpus_as_a_limit_leaves_and_gives_all_back(rig: Rig) -> None:
    workers = [gang_worker(rig, f"w{n}", **GPU) for n in range(5)]
    rig.admin.set_queue("default", {"max_jobs": 2, "max_gpus": 3})
    rig.submit(gpus=1, priority=9)
    for worker in workers:
        worker.look(**H100)
    # One of the three GPUs is in use.
    job = rig.submit(nodes=2, max_nodes=4, gpus=1)
    assert len(members(rig, job)) == 2
    assert slots(rig, job) == {"queue_gpus": 2, "queue_jobs": 1}
    # A new limit counts what runs.
    rig.admin.set_queue("default", {"max_jobs": 2, "max_gpus": 5})
    assert slots(rig, job) == {"queue_gpus": 2, "queue_jobs": 1}
    assert rig.database.rows("uneven_limits") == []
    assert rig.rows("SELECT forge_held_by_owner() AS held")[0]["held"] == {"ann": 3}
    for worker in workers:
        worker.look(**H100)
    end_run(rig, job, Reason.PREEMPTED)
    assert slots(rig, job) == {}
    for worker in workers:
        worker.look(**H100)
    assert len(members(rig, job)) == 4
    assert slots(rig, job) == {"queue_gpus": 4, "queue_jobs": 1}
    assert rig.database.rows("uneven_limits") == []


@pytest.mark.parametrize(("most", "asks"), [(4, False), (5, True)])
def test_a_range_may_spend_what_its_most_machines_do(rig: Rig, most: int, *, asks: bool) -> None:
    needs = {"nodes": 2, "gpus": 1, "timeout_s": 3600}
    failed = rig.submit(max_nodes=most, max_failures=0, **needs)
    workers = [gang_worker(rig, f"w{n}", **GPU) for n in range(2)]
    for worker in workers:
        worker.look(**H100)
    end_run(rig, failed, Reason.EXIT_CODE)
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=4))
    fixed, ranged = rig.submit(**needs), rig.submit(max_nodes=most, **needs)
    rig.queue.retry(failed)
    expected = State.HELD if asks else State.READY
    assert [rig.state(job) for job in (fixed, ranged, failed)] == [State.READY, expected, expected]


def slots(rig: Rig, job: int) -> dict[str, int]:
    """Return how many slots of each kind a job holds."""
    rows = rig.rows("SELECT kind, count(*) FROM slot WHERE job_id = %s GROUP BY kind", job)
    return {row["kind"]: row["count"] for row in rows}


def test_a_run_goes_on_at_once_with_the_machines_that_are_left(rig: Rig) -> None:
    workers = asleep(rig, 4)
    job = formed(rig, workers, max_nodes=8)
    lost = members(rig, job)[1]["worker_id"]
    rig.clock.advance(rig.queue.ttl.total_seconds() + 1)
    rig.rows(
        "UPDATE lease SET expires_at = forge_now() + interval '2 minutes' WHERE worker_id <> %s",
        lost,
    )
    assert rig.tick.requeue() == 1
    for row in members(rig, job):
        rig.queue.finish([End(Fence(job, row["token"], row["nonce"]), Reason.RUN_ENDED)])
    assert rig.places(job) == ["ready"]
    left = [worker for worker in workers if worker.id != lost]
    # Renewals do this.
    rig.rows("UPDATE worker SET last_seen_at = forge_now() WHERE id <> %s", lost)
    for worker in left:
        # It waits for the last one, although two would do.
        assert rig.places(job) == ["ready"]
        worker.look()
    found = members(rig, job)
    assert {row["worker_id"] for row in found} == {worker.id for worker in left}
    assert {row["attempt"] for row in found} == {2}
    assert spent(rig, job) == [0, 1, 0]


def test_a_run_does_not_wait_for_long_for_a_machine_of_the_last_one(rig: Rig) -> None:
    workers = asleep(rig, 3)
    job = formed(rig, workers, max_nodes=3)
    end_run(rig, job, Reason.PREEMPTED)
    for worker in workers[:2]:
        worker.look()
    pass_time(rig, 9)
    assert rig.places(job) == ["ready"]
    pass_time(rig, 2)
    assert len(members(rig, job)) == 2

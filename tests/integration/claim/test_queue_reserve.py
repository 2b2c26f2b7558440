"""No job waits for ever for CPUs, memory or disk because smaller ones pass it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.worker import Capacity
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.reservation import turns

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

SIZES = ["cpus", "memory_mb", "disk_mb"]


def four(rig: Rig, name: str = "w", *, patience_s: float = 0) -> Worker:
    """Register a worker with four of everything; each claim reads its lanes anew."""
    worker = rig.worker(name, cpus=4, memory_mb=4, disk_mb=4)
    worker.lanes = Lanes(rig.database, worker.id, refresh_s=-1, patience_s=patience_s)
    return worker


def claim(worker: Worker, count: int = 8, **free: int) -> list[int]:
    """Claim with this much free, and return the ids of the jobs granted."""
    sizes = {size: getattr(worker.free, size) for size in SIZES}
    room = Capacity(**{**sizes, **free})
    return [grant.fence.job_id for grant in worker.rig.queue.claim(worker.lanes, room, count=count)]


@pytest.mark.parametrize("size", SIZES)
def test_a_large_job_comes_to_its_turn_however_many_small_ones_there_are(
    rig: Rig, size: str
) -> None:
    worker = four(rig)
    small = rig.submit_many(20, priority=-100)
    assert claim(worker) == small[:4]
    large = rig.submit(priority=100, **{size: 4})
    # They end one after another, and the room that each leaves is reserved.
    for free in (0, 1, 2, 3):
        assert claim(worker, **{size: free}) == []
    assert claim(worker) == [large]
    # The job stops waiting, and the others continue.
    assert claim(worker, **{size: 1}) == small[4:5]


@pytest.mark.parametrize("size", SIZES)
def test_small_jobs_fill_the_gap_until_patience_ends(rig: Rig, size: str) -> None:
    worker = four(rig, patience_s=3600)
    large, small = rig.submit(priority=1, **{size: 4}), rig.submit_many(3)
    assert claim(worker, **{size: 3}) == small
    assert claim(worker) == [large]


def test_patience_goes_on_while_a_worker_starts_anew_and_on_others_a_turn_later(rig: Rig) -> None:
    worker, other = four(rig, patience_s=10), four(rig, "other", patience_s=10)
    for one in (worker, other):
        one.renew()
    large, small = rig.submit(cpus=4, priority=1), rig.submit_many(4)
    before = turns(rig.database, {"worker_id": worker.id, **place(rig, large)})
    first, last = (worker, other) if before == 1 else (other, worker)
    assert claim(last, 1, cpus=3) == small[:1]
    rig.clock.advance(11)
    for one in (first, last):
        one.lanes = Lanes(rig.database, one.id, refresh_s=-1, patience_s=10)
    assert claim(first, 1, cpus=3) == []
    assert claim(last, 1, cpus=3) == small[1:2]
    rig.clock.advance(10)
    assert claim(last, 1, cpus=3) == []
    assert claim(first, 1) == [large]
    assert claim(last, 1, cpus=3) == small[2:3]


def place(rig: Rig, job_id: int) -> dict[str, int]:
    """Return a job's lane and id."""
    return rig.row("SELECT lane_id, job_id FROM ready WHERE job_id = %s", job_id)


def test_a_higher_priority_and_what_fits_beside_go_before_a_waiting_job(rig: Rig) -> None:
    worker = four(rig)
    large = rig.submit(cpus=3)
    small, urgent = rig.submit_many(2), rig.submit(priority=5)
    assert claim(worker, 1, cpus=2) == [urgent]
    assert claim(worker, 1, cpus=2) == []
    assert claim(worker, 1) == [large]
    assert claim(worker, 2, cpus=1) == small[:1]


def test_a_waiting_job_that_another_worker_took_holds_nobody_up(rig: Rig) -> None:
    worker, other = four(rig), four(rig, "other")
    large, small = rig.submit(cpus=4, priority=1), rig.submit_many(2)
    assert claim(worker, cpus=2) == []
    assert claim(other) == [large]
    assert claim(worker, cpus=2) == small


def test_a_job_for_busy_gpus_keeps_no_cpus_from_others(rig: Rig) -> None:
    gpu = {"uuid": "GPU-1", "name": "NVIDIA A100-SXM4-80GB", "vram_mb": 81_920}
    worker = rig.worker(accelerator="cuda", gpus=[gpu])
    worker.lanes = Lanes(rig.database, worker.id, refresh_s=-1, patience_s=0)
    rig.submit(gpus=1, priority=1)
    small = rig.submit()
    (grant,) = rig.queue.claim(worker.lanes, Capacity(1, 100, 100))
    assert grant.fence.job_id == small


def test_who_asks_is_told_that_room_is_kept(rig: Rig) -> None:
    worker = four(rig)
    assert len(claim(worker, count=len(rig.submit_many(3)))) == 3
    large = rig.submit(cpus=4, priority=1)
    small = rig.submit()
    chances = {job: explain(rig.database, job, patience_s=0).workers for job in (large, small)}
    assert {job: [one.chance for one in of] for job, of in chances.items()} == {
        large: [Chance.BUSY],
        small: [Chance.RESERVED],
    }
    assert claim(worker, cpus=1, memory_mb=1, disk_mb=1) == []

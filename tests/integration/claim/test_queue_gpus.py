"""GPUs in the queue: jobs get those of one kind, and none waits for ever for several."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

from forge_schema.model.admin import OwnerSettings
from forge_schema.model.worker import Capacity
from forge_schema.queue.lanes import Lanes
from support.http.http_worker import FREE, raw_worker

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.http.api import Api
    from support.queue.rig import Rig, Worker

A100 = "NVIDIA A100-SXM4-80GB"
GPUS = [{"uuid": f"GPU-{n}", "name": A100, "vram_mb": 81_920} for n in range(4)]


def gpu_worker(rig: Rig, name: str = "w", *, patience_s: float = 0) -> Worker:
    """Register a worker with four free GPUs of one kind; each claim reads its lanes anew."""
    worker = rig.worker(name, accelerator="cuda", gpus=GPUS)
    worker.lanes = Lanes(rig.database, worker.id, refresh_s=-1, patience_s=patience_s)
    worker.free = replace(worker.free, gpu_model=A100, vram_mb=81_920, gpus_in_all=4)
    return worker


def claim(worker: Worker, gpus: int, count: int = 8) -> list[int]:
    """Claim with so many GPUs free, and return the ids of the jobs granted."""
    free = replace(worker.free, gpus=gpus)
    return ids(worker.rig.queue.claim(worker.lanes, free, count=count))


def ids(grants: list[Grant]) -> list[int]:
    return [grant.fence.job_id for grant in grants]


def test_a_claim_for_one_kind_of_gpu_is_granted_jobs_of_that_kind_alone(rig: Rig) -> None:
    worker = gpu_worker(rig)
    other = "NVIDIA GeForce RTX 3090"
    rtx = {"uuid": "GPU-x", "name": other, "vram_mb": 24_576}
    rig.worker("w", accelerator="cuda", gpus=[*GPUS, rtx])
    plain, small = rig.submit(), rig.submit(gpus=1, gpu_model="*3090")
    large, any_one = rig.submit(gpus=1, vram_mb=40_000), rig.submit(gpus=1)
    half_full = replace(worker.free, gpus=1, vram_mb=30_000)
    assert rig.queue.claim(worker.lanes, replace(half_full, cpus=0)) == []
    room = Capacity(100, 10_000, 10_000, 1, other, 24_576)
    assert ids(rig.queue.claim(worker.lanes, room)) == [plain]
    assert ids(rig.queue.claim(worker.lanes, room)) == [small]
    assert ids(rig.queue.claim(worker.lanes, half_full)) == [any_one]
    assert ids(rig.queue.claim(worker.lanes, half_full)) == []
    assert claim(worker, 1) == [large]


def test_a_job_for_all_gpus_gets_them_however_many_small_ones_come(rig: Rig) -> None:
    worker = gpu_worker(rig)
    running = rig.submit_many(4, gpus=1)
    assert claim(worker, 4) == running
    large = rig.submit(gpus=4)
    later = iter(rig.submit_many(20, gpus=1))
    plain = iter(rig.submit_many(4))
    # They end one after another, and each frees a GPU that a later job would take.
    for free in (1, 2, 3):
        assert claim(worker, free, count=1) == [next(plain)]
    assert claim(worker, 4, count=1) == [large]
    # The job stops waiting, and the others continue.
    for free in (4, 3, 2, 1):
        assert claim(worker, free, count=1) == [next(later)]


def test_small_jobs_fill_the_gap_until_patience_ends(rig: Rig) -> None:
    worker = gpu_worker(rig, patience_s=3600)
    large, small = rig.submit(gpus=4), rig.submit_many(3, gpus=1)
    assert claim(worker, 3, count=3) == small
    assert claim(worker, 4) == [large]


def test_a_higher_priority_and_what_fits_beside_go_before_a_waiting_job(rig: Rig) -> None:
    worker = gpu_worker(rig)
    large = rig.submit(gpus=3)
    small, urgent = rig.submit_many(2, gpus=1), rig.submit(gpus=1, priority=5)
    assert claim(worker, 2, count=1) == [urgent]
    assert claim(worker, 2, count=1) == []
    # A fourth GPU is not kept for the large job; with three free, it goes before all others.
    assert claim(worker, 4, count=1) == [large]
    assert claim(worker, 1, count=2) == small[:1]


def test_what_is_kept_is_kept_by_one_worker_first(rig: Rig) -> None:
    workers = [gpu_worker(rig, name, patience_s=1800) for name in "abc"]
    for worker in workers:
        worker.renew()
    rig.submit(gpus=4)
    free = replace(workers[0].free, gpus=1)

    def keeping() -> int:
        for worker in workers:
            worker.lanes.shown(free)
        return sum(worker.lanes.reservation(free).lane is not None for worker in workers)

    counts = [keeping()]
    for _ in range(3):
        rig.clock.advance(1801)
        counts.append(keeping())
    assert counts == [0, 1, 2, 3]


def test_nothing_is_kept_for_a_job_that_may_not_or_cannot_run(rig: Rig) -> None:
    worker = gpu_worker(rig)
    rig.submit(gpus=4, owner="ann", queue="large")
    small = cycle(rig.submit_many(4, gpus=1, owner="bob"))
    # A stranger has one of the four: the large job can never have them all.
    worker.free = replace(worker.free, gpus_in_all=3)
    assert claim(worker, 3, count=1) == [next(small)]
    worker.free = replace(worker.free, gpus_in_all=4)
    assert claim(worker, 3, count=1) == []
    rig.admin.limit_owner("ann", OwnerSettings(max_gpus=3, weight=1))
    assert claim(worker, 3, count=1) == [next(small)]
    rig.admin.limit_owner("ann", OwnerSettings(weight=1))
    assert claim(worker, 3, count=1) == []
    rig.admin.set_queue("large", {"paused": True})
    assert claim(worker, 3, count=1) == [next(small)]


def test_a_worker_over_http_names_the_kind_and_an_older_one_need_not(rig: Rig, api: Api) -> None:
    worker = raw_worker(api, registered=False)
    other = {"uuid": "GPU-x", "name": "NVIDIA GeForce RTX 3090", "vram_mb": 24_576}
    slice_ = {"uuid": "MIG-1", "name": "A100 1g", "vram_mb": 4864, "parent": "GPU-b"}
    worker.register(accelerator="cuda", gpus=[*GPUS, other, slice_])
    jobs = [rig.submit(gpus=1, gpu_model="*3090") for _ in range(2)]
    named = {**FREE, "gpus": 1, "gpus_in_all": 1, "gpu_model": A100, "vram_mb": 81_920}
    assert worker.claim(free=named) == []
    named |= {"gpu_model": other["name"], "vram_mb": 24_576}
    assert [grant["job_id"] for grant in worker.claim(free=named)] == jobs[:1]
    assert [grant["job_id"] for grant in worker.claim(free={**FREE, "gpus": 1})] == jobs[1:]
    assert worker.claim(free={**FREE, "gpus": 5}) == []

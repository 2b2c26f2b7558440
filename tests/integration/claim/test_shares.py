"""A job that names no memory gets a share of the worker that takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Outlook
from forge_schema.model.worker import Capacity

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

SHARE: dict[str, Any] = {"cpus": None, "memory_mb": None}
GPUS = [{"uuid": f"GPU-{n}", "name": "NVIDIA A100", "vram_mb": 81_920} for n in range(4)]


def lent(grant: Grant) -> tuple[float, int]:
    """Return the CPUs and the memory that a grant tells its worker to lend."""
    asked = grant.spec["resources"]
    return asked["cpus"], asked["memory_mb"]


def claimed(rig: Rig, worker: Worker, held: list[Grant]) -> list[Grant]:
    """Claim with what is left beside the resources held, until nothing more fits."""
    found: list[Grant] = []
    while True:
        free = worker.free
        for grant in held + found:
            free = free.without(Capacity(*lent(grant), 1, grant.spec["resources"]["gpus"]))
        grants = rig.queue.claim(worker.lanes, free, count=10)
        if not grants:
            return found
        found += grants


def test_jobs_without_gpus_get_memory_by_their_cpus(rig: Rig) -> None:
    worker = rig.worker(cpus=4, memory_mb=16_000)
    rig.submit_many(3, **SHARE)
    rig.submit(**{**SHARE, "cpus": 2})
    held = claimed(rig, worker, [])
    assert sorted(map(lent, held)) == [(1, 4000)] * 3
    for _ in range(2):
        rig.finish(held.pop())
    assert sorted(map(lent, claimed(rig, worker, held))) == [(2, 8000)]


def test_gpu_jobs_share_three_quarters_and_jobs_without_gpus_find_room_beside_them(
    rig: Rig,
) -> None:
    worker = rig.worker(cpus=16, memory_mb=64_000, gpus=GPUS, accelerator="cuda")
    rig.submit_many(2, gpus=1, **SHARE)
    rig.submit(gpus=2, **SHARE)
    held = claimed(rig, worker, [])
    assert sorted(map(lent, held)) == [(3, 12_000), (3, 12_000), (6, 24_000)]
    rig.submit_many(5, **SHARE)
    beside = claimed(rig, worker, held)
    assert [lent(grant) for grant in beside] == [(1, 4000)] * 4


def test_a_share_is_no_less_than_a_gibibyte_where_the_worker_has_one(rig: Rig) -> None:
    rig.submit(cpus=0.1, memory_mb=None)
    assert lent(rig.worker("large", cpus=8, memory_mb=8192).claim_one()) == (0.1, 1024)
    rig.submit(cpus=0.1, memory_mb=None)
    assert lent(rig.worker("small", cpus=8, memory_mb=512).claim_one()) == (0.1, 512)


def test_what_is_named_is_lent_as_named(rig: Rig) -> None:
    worker = rig.worker(cpus=16, memory_mb=64_000, gpus=GPUS, accelerator="cuda")
    rig.submit(gpus=1, cpus=2, memory_mb=None)
    rig.submit(gpus=1, cpus=None, memory_mb=700)
    rig.submit(cpus=3, memory_mb=1024)
    assert sorted(map(lent, worker.claim(9))) == [(2, 12_000), (3, 700), (3, 1024)]


def test_a_share_waits_for_memory_that_others_have_by_name(rig: Rig) -> None:
    worker = rig.worker(cpus=4, memory_mb=16_000)
    rig.submit(cpus=1, memory_mb=13_000)
    held = claimed(rig, worker, [])
    job = rig.submit(**SHARE)
    assert claimed(rig, worker, held) == []
    told = explain(rig.database, job)
    assert told.outlook is Outlook.BUSY
    (memory,) = [one for one in told.workers[0].requirements if one.name == "memory_mb"]
    assert (memory.wanted, memory.has, memory.free) == (4000, 16_000, 3000)
    rig.finish(held.pop())
    assert [grant.fence.job_id for grant in claimed(rig, worker, held)] == [job]


def test_a_share_has_no_number_in_the_row_and_none_is_shown(rig: Rig) -> None:
    job = rig.submit(gpus=1, **SHARE)
    (row,) = rig.rows("SELECT spec FROM job WHERE id = %s", job)
    for spec in (row["spec"], rig.jobs.job(job)["spec"]):
        assert (spec["resources"]["cpus"], spec["resources"]["memory_mb"]) == (None, None)


@pytest.mark.parametrize("named", [{"memory_mb": 1024}, {"cpus": 1, "memory_mb": 5}], ids=repr)
def test_a_job_that_named_its_memory_asks_for_no_share(rig: Rig, named: dict[str, Any]) -> None:
    shown = rig.jobs.job(rig.submit(**named))["spec"]["resources"]
    assert shown["memory_mb"] == named["memory_mb"]

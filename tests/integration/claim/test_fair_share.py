"""Fair share: owners get GPUs, or jobs without, by their weights, whatever the size of a job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.admin import OwnerSettings
from forge_schema.queue.lanes import Lanes

if TYPE_CHECKING:
    from support.queue.rig import Rig

LONG_S = 3600
GPUS = [{"name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(64)]


def test_owners_take_turns(rig: Rig) -> None:
    rig.submit_many(20, owner="ann")
    rig.submit_many(4, owner="bob")
    worker = rig.worker()
    owners = [worker.claim_one().owner for _ in range(8)]
    assert (owners.count("ann"), owners.count("bob")) == (4, 4)


@pytest.mark.parametrize("refresh_s", [-1, LONG_S])
def test_an_owner_of_twice_the_weight_has_twice_the_share(rig: Rig, refresh_s: float) -> None:
    for cpus in (1, 2):
        rig.submit_many(20, owner="ann", cpus=cpus)
    rig.submit_many(40, owner="bob")
    rig.admin.limit_owner("ann", OwnerSettings(weight=2))
    worker = rig.worker()
    lanes = Lanes(rig.database, worker.id, refresh_s=refresh_s)
    owners = [rig.queue.claim(lanes, worker.free)[0].owner for _ in range(30)]
    assert (owners.count("ann"), owners.count("bob")) == (20, 10)


def test_what_others_run_counts_for_the_share(rig: Rig) -> None:
    rig.submit_many(3, owner="ann")
    rig.worker("other").claim(count=3)
    rig.submit_many(5, owner="ann")
    rig.submit_many(5, owner="bob")
    worker = rig.worker()
    assert [worker.claim_one().owner for _ in range(3)] == ["bob"] * 3


@pytest.mark.parametrize(("weight", "owners"), [(1, (4, 4)), (3, (2, 6))])
def test_a_claim_of_many_is_shared_too(rig: Rig, weight: int, owners: tuple[int, int]) -> None:
    rig.submit_many(8, owner="ann")
    for cpus in (1, 2):
        rig.submit_many(4, owner="bob", cpus=cpus)
    rig.admin.limit_owner("bob", OwnerSettings(weight=weight))
    claimed = Counter(grant.owner for grant in rig.worker().claim(count=8))
    assert (claimed["ann"], claimed["bob"]) == owners


def test_a_claim_of_many_goes_by_priority_before_share(rig: Rig) -> None:
    urgent = rig.submit_many(6, owner="ann", priority=5)
    rig.submit_many(8, owner="bob")
    grants = rig.worker().claim(count=8)
    assert [grant.job_id for grant in grants[:6]] == urgent
    assert [grant.owner for grant in grants[6:]] == ["bob"] * 2


@pytest.mark.parametrize("count", [1, 6])
def test_owners_of_large_and_of_small_jobs_get_as_many_gpus(rig: Rig, count: int) -> None:
    rig.submit_many(20, owner="large", gpus=8)
    rig.submit_many(60, owner="small", gpus=1)
    worker = rig.worker(gpus=GPUS)
    gpus: Counter[str] = Counter()
    while sum(gpus.values()) < 48:
        for grant in worker.claim(count):
            gpus[grant.owner] += grant.spec["resources"]["gpus"]
    assert abs(gpus["large"] - gpus["small"]) <= 8

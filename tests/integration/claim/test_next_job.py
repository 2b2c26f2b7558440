"""The job that a full worker may prepare for: looked at, and left in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.admin import OwnerSettings
from forge_schema.queue.claim import next_inputs, next_job

if TYPE_CHECKING:
    from support.queue.rig import Rig

BUNDLE, IMAGE = "ab" * 32, "cd" * 32


def test_the_next_job_is_the_first_that_the_worker_could_run(rig: Rig) -> None:
    worker = rig.worker()
    assert next_job(rig.database, worker.lanes) is None
    rig.submit(gpus=8, priority=9)
    plain = rig.submit()
    wanted = rig.submit(priority=1, bundle_digest=BUNDLE, image_tar=IMAGE)
    grant = next_job(rig.database, worker.lanes)
    assert grant is not None
    assert (grant.job_id, grant.token, grant.bundle_digest) == (wanted, 0, BUNDLE)
    assert rig.places(wanted) == ["ready"]
    after = next_job(rig.database, worker.lanes, [wanted])
    assert after is not None
    assert after.job_id == plain
    # A claim finds it where it was, and its parts are those that were prepared.
    claimed = worker.claim_one()
    assert (claimed.job_id, claimed.parts) == (wanted, grant.parts)


def test_only_a_worker_that_could_run_a_waiting_job_learns_its_inputs(rig: Rig) -> None:
    worker, small = rig.worker(), rig.worker("small", cpus=1)
    job = rig.submit(cpus=2, bundle_digest=BUNDLE, image_tar=IMAGE)
    inputs = {"bundle_digest": BUNDLE, "image_tar": IMAGE}
    assert next_inputs(rig.database, worker.id, job) == inputs
    assert next_inputs(rig.database, small.id, job) is None
    worker.claim_one()
    assert next_inputs(rig.database, worker.id, job) is None


def test_a_job_beyond_its_owners_limit_counts_where_one_could_end(rig: Rig) -> None:
    worker, other = rig.worker(), rig.worker("other")
    rig.admin.limit_owner("ann", OwnerSettings(max_jobs=1))
    rig.submit_many(2)
    worker.claim_one()
    assert next_job(rig.database, worker.lanes) is not None
    assert next_job(rig.database, other.lanes) is None

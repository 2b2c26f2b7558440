"""A job that failed goes to another worker first, for a short time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.states import Reason
from forge_schema.model.worker import Gpu
from forge_schema.wake import Sleepers

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

AVOIDED_S = 15


def fails(rig: Rig, worker: Worker, why: Reason = Reason.EXIT_CODE, said: str = "boom") -> None:
    """Have a worker claim a job that ends there, and is ready again."""
    rig.finish(worker.claim_one(), why, exit_code=1, detail=said)


def retried(rig: Rig, **changes: Any) -> int:  # noqa: ANN401  fields of all types
    return rig.submit(backoff_s=0, max_failures=9, **changes)


def test_a_job_that_failed_is_left_to_another_worker_and_its_own_goes_on_with_others(
    rig: Rig,
) -> None:
    first, other = rig.worker("first"), rig.worker("other")
    job, next_one = retried(rig), rig.submit()
    fails(rig, first)
    assert [grant.job_id for grant in first.claim(2)] == [next_one]
    assert [grant.job_id for grant in other.claim(2)] == [job]


def test_a_job_that_nobody_else_takes_soon_goes_to_where_it_failed(rig: Rig) -> None:
    first, other = rig.worker("first"), rig.worker("other", cpus=4)
    job = retried(rig)
    fails(rig, first)
    assert first.claim() == []
    chances = {one.worker: one.chance for one in explain(rig.database, job).workers}
    assert chances == {"first": Chance.AVOIDED, "other": Chance.STARTS}
    rig.submit_many(4, priority=1, cpus=1)
    assert len(other.claim(4)) == 4
    found = explain(rig.database, job)
    assert (found.outlook, found.workers[0].chance) == (Outlook.BUSY, Chance.AVOIDED)
    rig.clock.advance(AVOIDED_S)
    assert explain(rig.database, job).outlook is Outlook.STARTS
    assert first.claim_one().job_id == job


def test_the_worker_that_is_woken_for_it_is_another_one_although_that_must_fetch_more(
    rig: Rig,
) -> None:
    first, other = rig.worker("first"), rig.worker("other")
    rig.submit(backoff_s=10, max_failures=9, bundle_digest="ab" * 32)
    grant = first.claim_one()
    rig.finish(grant, Reason.EXIT_CODE, exit_code=1, detail="boom")
    for worker, warm in ((first, grant.parts), (other, [])):
        sleepers = Sleepers()
        sleepers.looks(worker.id, worker.free, warm=[part for part in warm if part])
        sleepers.looked(rig.database, worker.id, worker.free, has_jobs=False)
    rig.clock.advance(60)
    rig.tick.promote()
    assert rig.rows("SELECT worker_id FROM idle") == [{"worker_id": first.id}]


@pytest.mark.parametrize("other", [None, "unfit", "offline"])
def test_a_machine_that_is_alone_takes_it_at_once(rig: Rig, other: str | None) -> None:
    first = rig.worker("first")
    if other:
        beside = rig.worker("other", cpus=1)
        if other == "offline":
            rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", beside.id)
    job = retried(rig, cpus=2)
    fails(rig, first)
    assert first.claim_one().job_id == job


def test_a_job_avoids_every_worker_where_it_failed_and_then_only_the_last(rig: Rig) -> None:
    workers = [rig.worker(name) for name in ("a", "b", "c")]
    job = retried(rig)
    fails(rig, workers[0])
    fails(rig, workers[1])
    assert [worker.claim() for worker in workers[:2]] == [[], []]
    fails(rig, workers[2])
    assert workers[2].claim() == []
    assert workers[0].claim_one().job_id == job


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Reason.OOM, "killed"),
        (Reason.EXIT_CODE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)
def test_after_it_ran_out_of_memory_one_that_has_more_goes_first(
    rig: Rig, why: Reason, said: str
) -> None:
    def machine(name: str, gib: int) -> Worker:
        gpu = Gpu(f"GPU-{name}", "A", gib << 10)
        return rig.worker(name, accelerator="cuda", gpus=[gpu], memory_mb=gib << 10)

    first, equal, larger = machine("first", 16), machine("equal", 16), machine("larger", 24)
    job = retried(rig, gpus=1, memory_mb=None)
    fails(rig, first, why, said)
    assert equal.claim() == []
    fails(rig, larger, why, said)
    # None has more than that.
    assert larger.claim() == []
    assert equal.claim_one().job_id == job


def test_a_preempted_job_may_go_on_where_it_was(rig: Rig) -> None:
    first, _ = rig.worker("first"), rig.worker("other")
    job = retried(rig)
    fails(rig, first, Reason.PREEMPTED)
    assert first.claim_one().job_id == job

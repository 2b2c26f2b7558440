"""Requests above what their owner may spend: who waits for approval, and what releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_schema.model.admin import Approved, OwnerSettings
from forge_schema.model.job import JobStatus
from forge_schema.model.states import Reason
from forge_schema.queue.cancel_retry import JobActs
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig

HOUR = 3600


def limit(rig: Rig, gpu_hours: float | None = None, cost: float | None = None) -> None:
    """Set what ann may spend without asking."""
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=gpu_hours, approve_cost=cost))


def approve(rig: Rig, *jobs: int) -> Approved:
    return JobActs(rig.database, owner=None, actor="user:root").approve(jobs)


def states(rig: Rig, jobs: list[int]) -> list[str]:
    assert all(len(rig.places(job)) == 1 for job in jobs)
    return [rig.state(job).value for job in jobs]


def status(rig: Rig, job: int) -> JobStatus:
    return JobStatus.model_validate(rig.jobs.job(job))


def test_a_job_above_the_gpu_hours_waits_until_it_is_approved(rig: Rig) -> None:
    limit(rig, gpu_hours=8)
    within, above = (rig.submit(gpus=2, timeout_s=hours * HOUR) for hours in (4, 5))
    assert states(rig, [within, above]) == ["ready", "held"]
    held = status(rig, above)
    assert (held.waits_for, held.approval and held.approval.amount) == (
        ["approval"], "10 GPU-hours",
    )  # fmt: skip
    became = {within: "unasked", above: "approved", 999: "absent"}
    assert approve(rig, *became) == Approved(approved=1, unasked=1, absent=1, became=became)
    assert approve(rig, above).became == {above: "approved"}
    assert (states(rig, [above]), status(rig, above).waits_for) == (["ready"], None)
    (event,) = rig.rows("SELECT actor, detail FROM event WHERE action = 'approved'")
    assert (event["actor"], event["detail"]["gpu_hours"]) == ("user:root", 10)
    assert rig.actions(above) == ["submitted", "asked for approval", "approved", "released"]


def test_jobs_without_a_time_limit_wait_but_not_those_that_spend_nothing(rig: Rig) -> None:
    limit(rig, gpu_hours=8)
    asked = [spec(gpus=1), spec(), spec(gpus=1, timeout_s=1), spec(owner="bob", gpus=1)]
    assert states(rig, rig.queue.submit(asked)) == ["held", "ready", "held", "ready"]


def test_a_request_counts_as_a_whole(rig: Rig) -> None:
    limit(rig, gpu_hours=8)
    mixed = [spec(gpus=1, timeout_s=HOUR)] * 5 + [spec(gpus=1, timeout_s=2 * HOUR)] * 2
    jobs = rig.queue.submit(mixed)
    assert set(states(rig, jobs)) == {"held"}
    asked = status(rig, jobs[6]).approval
    assert asked
    assert (asked.jobs, asked.gpu_hours, asked.all_gpu_hours) == (7, 2, 9)
    assert set(states(rig, rig.queue.submit(mixed[:6]))) == {"ready"}


def test_the_cost_is_that_of_the_dearest_worker_that_fits(rig: Rig) -> None:
    limit(rig, cost=10)
    rig.submit(owner="bob")
    assert states(rig, [rig.submit(timeout_s=1)]) == ["held"], "no worker has a price"
    rig.worker("cheap", price_per_hour=1)
    rig.worker("dear", price_per_hour=5)
    rig.worker("other", price_per_hour=500, cpus=1)
    jobs = [rig.submit(cpus=2, timeout_s=hours * HOUR) for hours in (2, 3)]
    assert states(rig, jobs) == ["ready", "held"]
    asked = status(rig, jobs[1]).approval
    assert asked
    assert (asked.cost, asked.most_cost, asked.amount) == (15, 10, "a cost of 15.00")


def test_an_approved_job_still_waits_for_other_jobs_its_turn_and_its_time(rig: Rig) -> None:
    first = rig.submit()
    limit(rig, gpu_hours=0)
    asks: dict[str, Any] = {"gpus": 1, "timeout_s": 1}
    waiting = rig.submit(after_ok=[first], delay_s=60, **asks)
    assert approve(rig, waiting).approved == 1
    assert status(rig, waiting).waits_for == ["jobs"]
    both = rig.submit(after_ok=[first], **asks)
    rig.finish(rig.worker().claim_one())
    assert states(rig, [waiting, both]) == ["scheduled", "held"]
    assert status(rig, both).waits_for == ["approval"]
    line = rig.submit_many(3, sweep="s", parallel=1, **asks)
    approve(rig, line[1], line[2])
    assert states(rig, line) == ["held", "ready", "held"]
    assert [status(rig, job).waits_for for job in line] == [["approval"], None, ["turn"]]
    approve(rig, line[0])
    assert rig.queue.cancel(line[1]) == "cancelled"
    assert states(rig, line) == ["ready", "cancelled", "held"]


def test_a_refused_job_says_so_and_a_failed_dependency_ends_it(rig: Rig) -> None:
    first = rig.submit(max_failures=0)
    limit(rig, gpu_hours=0)
    refused, dependent = rig.submit(gpus=1), rig.submit(gpus=1, after_ok=[first])
    assert rig.queue.cancel(refused) == "cancelled"
    assert rig.jobs.job(refused)["detail"] == "it was not approved"
    rig.finish(rig.worker().claim_one(), Reason.TIMEOUT)
    assert rig.jobs.job(dependent)["reason"] == "dependency_failed"
    assert approve(rig, refused, dependent).unasked == 2


def test_a_retry_asks_again_for_all_its_jobs(rig: Rig) -> None:
    limit(rig, gpu_hours=3)
    asks: dict[str, Any] = {"gpus": 1, "timeout_s": 2 * HOUR, "max_failures": 0}
    jobs = [rig.submit(**asks) for _ in range(2)]
    worker = rig.worker(gpus=[{"id": str(n), "name": "g", "vram_mb": 1} for n in range(4)])
    for grant in worker.claim(2):
        rig.finish(grant, Reason.TIMEOUT)
    acts = JobActs(rig.database, owner="ann", actor="user:ann")
    assert acts.retry(jobs)["retried"] == 2
    assert states(rig, jobs) == ["held", "held"]
    assert approve(rig, *jobs).approved == 2
    for grant in worker.claim(2):
        rig.finish(grant, Reason.TIMEOUT)
    rig.queue.retry(jobs[0])
    assert states(rig, jobs) == ["ready", "failed"]


def test_a_repeated_submit_neither_asks_twice_nor_takes_an_approval_back(rig: Rig) -> None:
    limit(rig, gpu_hours=0)
    asked = spec(gpus=1, idempotency_key="k")
    (job,) = rig.queue.submit([asked])
    rig.database.lose("approve")
    assert approve(rig, job).approved == 1
    assert rig.queue.submit([asked]) == [job]
    assert states(rig, [job]) == ["ready"]
    assert rig.actions(job) == ["submitted", "asked for approval", "approved", "released"]

"""What an end costs: three budgets, each good for some retries, with growing pauses between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Budget, Reason, State

if TYPE_CHECKING:
    from support.queue.rig import Rig

CHARGED = {Budget.FAILURES, Budget.LOSSES, Budget.PREEMPTIONS}
# A start that failed is charged only if it repeats itself: see below.
COSTLY = [
    reason for reason in Reason if reason.budget in CHARGED and reason is not Reason.START_FAILED
]
AT_ONCE = {Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.PREEMPTED, Reason.DRAINED}


@pytest.mark.parametrize("granted", [0, 1, 3])
@pytest.mark.parametrize("reason", COSTLY)
def test_a_budget_of_n_grants_n_retries(rig: Rig, reason: Reason, granted: int) -> None:
    budgets = {"max_failures": 9, "max_losses": 9, "max_preemptions": 9}
    budgets[f"max_{reason.budget}"] = granted
    job_id = rig.submit(backoff_s=0, **budgets)
    worker = rig.worker()
    for n in range(granted + 1):
        grant = worker.claim_one()
        assert (grant.attempt, getattr(grant, reason.budget)) == (n + 1, n)
        ended = rig.finish(grant, reason)
        assert ended.state == (State.READY if n < granted else State.DEAD)
    assert (rig.places(job_id), worker.claim()) == (["outcome"], [])
    assert [row["reason"] for row in rig.jobs.attempts(job_id)] == [reason] * (granted + 1)


def test_each_budget_is_charged_for_itself(rig: Rig) -> None:
    rig.submit(backoff_s=0, max_failures=1, max_losses=1, max_preemptions=1)
    worker = rig.worker()
    for reason in (Reason.EXIT_CODE, Reason.WORKER_LOST, Reason.PREEMPTED):
        assert rig.finish(worker.claim_one(), reason).state == State.READY
    grant = worker.claim_one()
    assert (grant.failures, grant.losses, grant.preemptions) == (1, 1, 1)
    assert rig.finish(grant, Reason.OOM).state == State.DEAD


def test_starts_that_fail_are_charged_where_they_repeat_themselves(rig: Rig) -> None:
    job_id = rig.submit(backoff_s=0, max_losses=1)
    workers = [rig.worker(f"w{n}") for n in range(5)]
    losses = []
    for n in (0, 0, 1):
        grant = workers[n].claim_one()
        losses.append(grant.losses)
        assert rig.finish(grant, Reason.START_FAILED).state == State.READY
        # Until then, the job is left to other workers.
        rig.clock.advance(15)
    assert losses == [0, 0, 1]
    grant = workers[2].claim_one()
    assert grant.losses == 1
    assert rig.finish(grant, Reason.START_FAILED).state == State.DEAD
    assert rig.places(job_id) == ["outcome"]


def test_a_job_that_no_worker_can_start_comes_to_an_end(rig: Rig) -> None:
    rig.submit(backoff_s=0, max_losses=0)
    ends = [
        rig.finish(rig.worker(f"w{n}").claim_one(), Reason.START_FAILED).state for n in range(4)
    ]
    assert ends == [State.READY] * 3 + [State.DEAD]


def test_draining_costs_nothing(rig: Rig) -> None:
    rig.submit(max_failures=0, max_losses=0, max_preemptions=0)
    worker = rig.worker()
    for _ in range(20):
        assert rig.finish(worker.claim_one(), Reason.DRAINED).state == State.READY
    assert rig.finish(worker.claim_one()).state == State.SUCCEEDED


@pytest.mark.parametrize("reason", [r for r in Reason if r.budget is Budget.FINAL])
def test_a_final_reason_ends_the_job_whatever_is_left(rig: Rig, reason: Reason) -> None:
    job_id = rig.submit()
    assert rig.finish(rig.worker().claim_one(), reason).state == State.FAILED
    assert rig.jobs.job(job_id)["reason"] == reason


def test_an_expired_lease_is_charged_as_a_loss(rig: Rig) -> None:
    job_id = rig.submit(max_losses=1)
    worker = rig.worker()
    for state in (State.READY, State.DEAD):
        worker.claim_one()
        rig.expire()
        assert rig.tick.run().requeued == 1
        assert rig.state(job_id) == state


@pytest.mark.parametrize("reason", sorted(AT_ONCE))
def test_a_healthy_job_is_ready_at_once(rig: Rig, reason: Reason) -> None:
    rig.submit(backoff_s=100)
    assert rig.finish(rig.worker().claim_one(), reason).state == State.READY


@pytest.mark.parametrize("reason", sorted(set(COSTLY) - AT_ONCE))
def test_a_failing_job_backs_off_further_each_time(rig: Rig, reason: Reason) -> None:
    job_id = rig.submit(backoff_s=10, max_failures=20, max_losses=20)
    worker = rig.worker()
    for n in range(20):
        ended = rig.finish(worker.claim_one(), reason)
        assert ended.state == State.SCHEDULED
        run_at = rig.jobs.job(job_id)["run_at"]
        middle = min(10 * 2**n, 86_400)
        pause = (run_at - rig.clock.now).total_seconds()
        assert 0.5 * middle <= pause <= 1.5 * middle
        rig.clock.set(run_at)
        rig.tick.promote()


def test_jobs_that_fail_together_come_back_apart(rig: Rig) -> None:
    rig.submit_many(30, backoff_s=100)
    for grant in rig.worker().claim(count=30):
        rig.finish(grant, Reason.EXIT_CODE)
    pauses = {row["run_at"] for row in rig.rows("SELECT run_at FROM scheduled")}
    spread = (max(pauses) - min(pauses)).total_seconds()
    assert len(pauses) == 30
    assert spread > 30


def test_a_job_keeps_its_priority_and_budgets_while_it_backs_off(rig: Rig) -> None:
    rig.submit(priority=4, backoff_s=10)
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.PREEMPTED)
    rig.finish(worker.claim_one(), Reason.OOM)
    rig.clock.advance(15)
    rig.tick.promote()
    grant = worker.claim_one()
    assert (grant.attempt, grant.priority) == (3, 4)
    assert (grant.failures, grant.losses, grant.preemptions) == (1, 0, 1)

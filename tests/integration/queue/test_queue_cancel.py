"""Cancelling and preempting: waiting jobs at once, running ones by request, honestly reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.job import JobUnknown
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, State
from support.at_once import at_once

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig


@pytest.mark.parametrize("delay_s", [0, 60])
def test_a_waiting_job_is_cancelled_at_once(rig: Rig, delay_s: int) -> None:
    job_id = rig.submit(delay_s=delay_s)
    assert rig.queue.cancel(job_id) == State.CANCELLED
    rig.clock.advance(61)
    rig.tick.run()
    assert (rig.places(job_id), rig.worker().claim()) == (["outcome"], [])
    assert rig.actions(job_id) == ["submitted", "cancelled"]
    assert rig.jobs.job(job_id)["reason"] == Reason.CANCELLED


def test_cancelling_again_answers_the_same_and_is_told_once(rig: Rig) -> None:
    waiting, running = rig.submit_many(2)[::-1]
    rig.worker().claim_one()
    assert [rig.queue.cancel(waiting) for _ in range(3)] == [State.CANCELLED] * 3
    assert [rig.queue.cancel(running) for _ in range(3)] == [State.RUNNING] * 3
    assert rig.actions(waiting) == ["submitted", "cancelled"]
    assert rig.actions(running) == ["submitted", "asked to cancel"]


@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.SUCCEEDED])
def test_a_job_asked_to_cancel_is_cancelled_however_it_ends(rig: Rig, reason: Reason) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    assert rig.queue.cancel(job_id) == State.RUNNING
    assert rig.finish(grant, reason).state == State.CANCELLED
    assert (rig.places(job_id), worker.claim()) == (["outcome"], [])
    assert rig.jobs.job(job_id)["reason"] == Reason.CANCELLED
    assert rig.queue.cancel(job_id) == State.CANCELLED


def test_a_success_before_the_cancel_arrives_stands(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    rig.queue.cancel(job_id)
    (ended,), _ = rig.queue.finish_and_claim(
        [End(grant.fence, Reason.SUCCEEDED)], worker.lanes, worker.free
    )
    assert ended.state == rig.queue.cancel(job_id) == State.SUCCEEDED


def test_a_job_asked_to_cancel_whose_worker_died_does_not_run_again(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    worker.claim_one()
    rig.queue.cancel(job_id)
    rig.expire()
    assert rig.tick.run().requeued == 1
    assert (rig.state(job_id), worker.claim()) == (State.CANCELLED, [])


def test_a_job_that_backs_off_is_cancelled_with_its_attempts_counted(rig: Rig) -> None:
    job_id = rig.submit()
    rig.finish(rig.worker().claim_one(), Reason.EXIT_CODE)
    assert rig.places(job_id) == ["scheduled"]
    assert rig.queue.cancel(job_id) == State.CANCELLED
    assert rig.jobs.job(job_id)["attempt"] == 1


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.SUCCEEDED, State.SUCCEEDED),
        (Reason.TIMEOUT, State.FAILED),
        (Reason.EXIT_CODE, State.DEAD),
    ],
)
def test_a_finished_job_stays_as_it_is(rig: Rig, reason: Reason, state: State) -> None:
    job_id = rig.submit(max_failures=0)
    rig.finish(rig.worker().claim_one(), reason)
    before = rig.row("SELECT * FROM outcome")
    assert rig.queue.cancel(job_id) == state
    assert rig.row("SELECT * FROM outcome") == before


def test_an_unknown_job_is_said_to_be_unknown(rig: Rig) -> None:
    for verb in (rig.queue.cancel, rig.queue.preempt, rig.queue.retry):
        with pytest.raises(JobUnknown, match="404") as refused:
            verb(404)
        assert (refused.value.code, bool(refused.value.hint)) == ("job_unknown", True)


def test_a_cancel_that_meets_a_claim_asks_the_claimer(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.claim(worker.lanes, worker.free)
            cancelled = pool.submit(rig.queue.cancel, job_id)
            rig.wait_until_blocked()
        assert cancelled.result(timeout=120) == State.RUNNING
    assert rig.row("SELECT asked FROM lease")["asked"] == "cancelled"


def test_a_claim_that_meets_a_cancel_takes_another_job(rig: Rig) -> None:
    first, second = rig.submit_many(2)
    worker = rig.worker()
    with rig.uncommitted() as queue:
        assert queue.cancel(first) == State.CANCELLED
        assert worker.claim_one().fence.job_id == second
    assert rig.state(first) == State.CANCELLED


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.EXIT_CODE, Reason.PREEMPTED])
def test_a_cancel_that_meets_the_end_of_an_attempt_finds_where_the_job_went(
    rig: Rig, reason: Reason
) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(grant.fence, reason)])
            cancelled = pool.submit(rig.queue.cancel, job_id)
            rig.wait_until_blocked()
        wanted = State.SUCCEEDED if reason is Reason.SUCCEEDED else State.CANCELLED
        assert cancelled.result(timeout=120) == rig.state(job_id) == wanted
    assert rig.places(job_id) == ["outcome"]


def test_a_cancel_that_meets_the_promotion_finds_the_job_ready(rig: Rig) -> None:
    job_id = rig.submit(delay_s=1)
    rig.clock.advance(2)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.database.rows("promote", job_id=None, count=10, actor="sweeper")
            cancelled = pool.submit(rig.queue.cancel, job_id)
            rig.wait_until_blocked()
        assert cancelled.result(timeout=120) == State.CANCELLED
    assert rig.places(job_id) == ["outcome"]


def test_claims_and_cancels_at_once_leave_each_job_in_one_place(rig: Rig) -> None:
    job_ids = rig.submit_many(150)
    workers = [rig.worker(f"w{n}") for n in range(3)]
    granted: list[Grant] = []

    def claim_all(n: int) -> None:
        while rig.count("ready"):
            granted.extend(workers[n].claim(count=2))

    def cancel_all(n: int) -> None:
        for job_id in job_ids[n::2]:
            assert rig.queue.cancel(job_id) in {State.CANCELLED, State.RUNNING}

    at_once(*[partial(claim_all, n) for n in range(3)], *[partial(cancel_all, n) for n in range(2)])
    assert all(len(rig.places(job_id)) == 1 for job_id in job_ids)
    assert {row["asked"] for row in rig.rows("SELECT asked FROM lease")} <= {"cancelled"}
    assert sorted(grant.fence.job_id for grant in granted) == [
        row["job_id"] for row in rig.rows("SELECT job_id FROM lease ORDER BY job_id")
    ]
    for grant in granted:
        assert rig.finish(grant, Reason.EXIT_CODE).state == State.CANCELLED
    assert rig.count("outcome") == len(job_ids)


def test_a_preempted_job_is_asked_back_and_ready_again_without_a_failure(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    assert [rig.queue.preempt(job_id) for _ in range(2)] == [True, True]
    assert rig.actions(job_id) == ["submitted", "asked to preempt"]
    assert worker.renew(grant).standings == {grant.fence: "preempted"}
    assert rig.queue.release(grant.fence).state == State.READY
    following = worker.claim_one()
    assert (following.failures, following.losses, following.preemptions) == (0, 0, 1)
    assert worker.renew(following).standings == {following.fence: "ok"}


def test_only_a_running_job_can_be_preempted(rig: Rig) -> None:
    ready, scheduled, done = rig.submit(), rig.submit(delay_s=9), rig.submit(priority=1)
    rig.finish(rig.worker().claim_one())
    assert [rig.queue.preempt(job_id) for job_id in (ready, scheduled, done)] == [False] * 3


def test_a_preemption_does_not_take_a_cancel_back(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.queue.cancel(job_id)
    rig.queue.preempt(job_id)
    assert rig.queue.release(grant.fence).state == State.CANCELLED


def test_a_cancel_overrules_a_preemption(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.queue.preempt(job_id)
    assert rig.queue.cancel(job_id) == State.RUNNING
    assert rig.queue.release(grant.fence).state == State.CANCELLED

"""Finishing: the first commit wins, and a late or false report changes nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.model.lease import End, Ended, Usage
from forge_schema.model.states import Asked, Phase, Reason, State
from support.at_once import at_once
from support.queue.rig import stale

if TYPE_CHECKING:
    from forge_schema.model.lease import Fence, Grant
    from support.queue.rig import Rig, Worker

TABLES = ("ready", "scheduled", "lease", "outcome", "attempt")


def claimed(rig: Rig, **changes: object) -> tuple[Worker, Grant]:
    """Submit a job and claim it."""
    rig.submit(**changes)
    worker = rig.worker()
    return worker, worker.claim_one()


def counts(rig: Rig) -> list[int]:
    return [rig.count(table) for table in TABLES]


def test_a_success_is_the_outcome_and_the_history_of_the_job(rig: Rig) -> None:
    worker, grant = claimed(rig)
    rig.clock.advance(3)
    rig.queue.report(grant.fence, Phase.RUNNING, devices=["GPU-1"])
    rig.clock.advance(4)
    ended = rig.finish(grant, exit_code=0, detail="well", usage=Usage(8.0, 9.5, 0.25))
    job_id = grant.fence.job_id
    assert ended == Ended(job_id, accepted=True, reason=Reason.SUCCEEDED, state=State.SUCCEEDED)
    assert rig.places(job_id) == ["outcome"]
    (attempt,) = rig.jobs.attempts(job_id)
    told = {"attempt": 1, "worker": "w", "reason": "succeeded", "exit_code": 0, "detail": "well"}
    told |= {"devices": ["GPU-1"], "gpu_seconds": 8.0, "energy_j": 9.5, "cost": 0.25}
    told |= {"held_s": 7.0, "waited_s": 0.0, "accepted": True, "token": grant.fence.token}
    assert attempt | told == attempt
    assert rig.row("SELECT worker_id FROM attempt")["worker_id"] == worker.id
    assert rig.jobs.job(job_id)["token"] == grant.fence.token


@pytest.mark.parametrize("reason", Reason)
def test_an_end_repeated_answers_the_same_and_changes_nothing(rig: Rig, reason: Reason) -> None:
    _, grant = claimed(rig)
    first, before = rig.finish(grant, reason), counts(rig)
    assert first.accepted
    assert [rig.finish(grant, reason) for _ in range(2)] == [first, first]
    assert counts(rig) == before


def test_an_end_repeated_after_the_job_moved_on_is_still_known(rig: Rig) -> None:
    worker, grant = claimed(rig, backoff_s=0)
    rig.finish(grant, Reason.EXIT_CODE)
    second = worker.claim_one()
    again = rig.finish(grant, Reason.EXIT_CODE)
    assert (again.accepted, again.state) == (True, State.RUNNING)
    assert rig.row("SELECT token FROM lease")["token"] == second.fence.token


def test_an_end_after_expiry_but_before_the_tick_is_accepted(rig: Rig) -> None:
    _, grant = claimed(rig)
    rig.expire()
    assert rig.finish(grant).accepted
    assert rig.tick.run().requeued == 0
    assert rig.state(grant.fence.job_id) == State.SUCCEEDED


def test_a_success_after_the_job_was_requeued_is_lost(rig: Rig) -> None:
    worker, grant = claimed(rig)
    rig.expire()
    rig.tick.requeue()
    before = counts(rig)
    late = rig.finish(grant)
    assert (late.accepted, late.reason, late.state) == (False, Reason.WORKER_LOST, State.READY)
    (also_late,), granted = rig.queue.finish_and_claim(
        [End(grant.fence, Reason.SUCCEEDED)], worker.lanes, worker.free, count=0
    )
    assert (also_late.accepted, granted, counts(rig)) == (False, [], before)


def test_a_stale_end_does_not_touch_the_present_holder(rig: Rig) -> None:
    worker, old = claimed(rig)
    rig.expire()
    rig.tick.requeue()
    new = worker.claim_one()
    assert not rig.finish(old).accepted
    assert rig.row("SELECT token FROM lease")["token"] == new.fence.token
    assert rig.finish(new).accepted


def test_old_and_new_lease_of_one_job_ended_together_are_told_apart(rig: Rig) -> None:
    worker, old = claimed(rig)
    rig.expire()
    rig.tick.requeue()
    new = worker.claim_one()
    answers = rig.queue.finish([End(old.fence, Reason.SUCCEEDED), End(new.fence, Reason.OOM)])
    assert [answer.accepted for answer in answers] == [False, True]
    assert [row["reason"] for row in rig.jobs.attempts(old.fence.job_id)] == ["worker_lost", "oom"]


def test_the_same_holds_when_both_are_reported_with_a_claim(rig: Rig) -> None:
    worker, old = claimed(rig)
    rig.expire()
    rig.tick.requeue()
    new = worker.claim_one()
    ends = [End(old.fence, Reason.SUCCEEDED), End(new.fence, Reason.SUCCEEDED)]
    answers, _ = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert [answer.accepted for answer in answers] == [False, True]


@pytest.mark.parametrize("wrong", ["token", "nonce", "job"])
@pytest.mark.parametrize("fused", [False, True])
def test_an_end_with_a_wrong_fence_is_lost(rig: Rig, wrong: str, *, fused: bool) -> None:
    worker, grant = claimed(rig)
    fence: Fence = {
        "token": stale(grant, token=grant.fence.token + 1),
        "nonce": stale(grant, nonce=uuid4()),
        "job": stale(grant, job_id=grant.fence.job_id + 1),
    }[wrong]
    before = counts(rig)
    if fused:
        ends = [End(fence, Reason.SUCCEEDED)]
        (ended,), _ = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    else:
        (ended,) = rig.queue.finish([End(fence, Reason.SUCCEEDED)])
    assert ended == Ended(fence.job_id, accepted=False)
    assert counts(rig) == before


def test_answers_come_in_the_order_of_the_ends(rig: Rig) -> None:
    rig.submit_many(5)
    worker = rig.worker()
    grants = worker.claim(count=5)[::-1]
    ends = [End(grant.fence, Reason.SUCCEEDED) for grant in grants]
    wanted = [grant.fence.job_id for grant in grants]
    assert [ended.job_id for ended in rig.queue.finish(ends)] == wanted
    fused, _ = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert [ended.job_id for ended in fused] == wanted
    assert all(ended.accepted for ended in fused)


def test_finishing_and_claiming_is_one_statement(rig: Rig) -> None:
    worker, grant = claimed(rig)
    following = rig.submit()
    rig.database.names()
    ends, (granted,) = rig.queue.finish_and_claim(
        [End(grant.fence, Reason.SUCCEEDED)], worker.lanes, worker.free
    )
    assert rig.database.names() == ["match", "finish_and_claim"]
    assert (ends[0].state, granted.fence.job_id) == (State.SUCCEEDED, following)
    assert rig.places(grant.fence.job_id) == ["outcome"]


def test_a_lost_lease_does_not_keep_the_claim_back(rig: Rig) -> None:
    worker, grant = claimed(rig)
    following = rig.submit()
    ends = [End(stale(grant, nonce=uuid4()), Reason.SUCCEEDED), End(grant.fence, Reason.SUCCEEDED)]
    answers, (granted,) = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert [answer.accepted for answer in answers] == [False, True]
    assert granted.fence.job_id == following


def test_of_two_ends_at_once_the_first_commit_wins(rig: Rig) -> None:
    job_ids = rig.submit_many(40)
    worker = rig.worker()
    for grant in worker.claim(count=40):
        answers = at_once(
            partial(rig.finish, grant, Reason.SUCCEEDED),
            partial(rig.finish, grant, Reason.TIMEOUT),
        )
        (winner,) = [answer for answer in answers if answer.accepted]
        assert {answer.reason for answer in answers} == {winner.reason}
        assert rig.state(grant.fence.job_id) == winner.state
    assert counts(rig) == [0, 0, 0, len(job_ids), len(job_ids)]


@pytest.mark.parametrize(
    ("reason", "state", "stored"),
    [
        (Reason.SUCCEEDED, State.SUCCEEDED, Reason.SUCCEEDED),
        (Reason.EXIT_CODE, State.FAILED, Reason.TIMEOUT),
        (Reason.TIMEOUT, State.FAILED, Reason.TIMEOUT),
        (Reason.PREEMPTED, State.FAILED, Reason.TIMEOUT),
        (Reason.WORKER_LOST, State.FAILED, Reason.TIMEOUT),
    ],
)
def test_a_job_past_its_time_limit_fails_however_it_ends(
    rig: Rig, reason: Reason, state: State, stored: Reason
) -> None:
    _, grant = claimed(rig, timeout_s=10)
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(11)
    assert rig.tick.run().overdue == 1
    assert rig.row("SELECT asked FROM lease")["asked"] == Asked.TIMEOUT
    assert rig.finish(grant, reason).state == state
    assert rig.jobs.job(grant.fence.job_id)["reason"] == stored


@pytest.mark.parametrize("detail", ["a\0b", "\ud800", "x" * 1_000_000, "", None])
def test_no_detail_keeps_a_result_from_being_stored(rig: Rig, detail: str | None) -> None:
    _, grant = claimed(rig)
    assert rig.finish(grant, Reason.TIMEOUT, detail=detail).accepted
    kept = rig.jobs.job(grant.fence.job_id)["detail"]
    assert kept is None if detail is None else len(kept) <= 10_000

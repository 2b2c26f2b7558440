"""Retrying: only what failed or died, with fresh budgets, and its history kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason, State
from forge_schema.queue.queue import NotRetryable
from support.at_once import at_once

if TYPE_CHECKING:
    from support.queue.rig import Rig


def _ended(rig: Rig, reason: Reason) -> int:
    job_id = rig.submit(max_failures=0, backoff_s=0)
    rig.finish(rig.worker().claim_one(), reason)
    return job_id


@pytest.mark.parametrize(
    ("reason", "state"), [(Reason.EXIT_CODE, State.DEAD), (Reason.TIMEOUT, State.FAILED)]
)
def test_a_failed_or_dead_job_is_ready_again_with_fresh_budgets(
    rig: Rig, reason: Reason, state: State
) -> None:
    job_id = _ended(rig, reason)
    assert rig.state(job_id) == state
    rig.queue.retry(job_id)
    assert rig.places(job_id) == ["ready"]
    grant = rig.worker().claim_one()
    assert (grant.attempt, grant.failures) == (2, 0)
    assert rig.finish(grant).state == State.SUCCEEDED
    assert [row["reason"] for row in rig.jobs.attempts(job_id)] == [reason, "succeeded"]
    assert [row["accepted"] for row in rig.jobs.attempts(job_id)] == [False, True]
    assert rig.actions(job_id) == ["submitted", "retried"]


def test_the_end_of_an_attempt_before_the_retry_is_still_known_and_changes_nothing(
    rig: Rig,
) -> None:
    job_id = rig.submit(max_failures=0)
    grant = rig.worker().claim_one()
    rig.finish(grant, Reason.EXIT_CODE)
    rig.queue.retry(job_id)
    again = rig.finish(grant, Reason.EXIT_CODE)
    assert (again.accepted, again.state, rig.places(job_id)) == (True, State.READY, ["ready"])


def test_what_did_not_fail_is_not_retried(rig: Rig) -> None:
    done, running, ready, cancelled = rig.submit_many(4)
    worker = rig.worker()
    rig.finish(worker.claim_one())
    worker.claim_one()
    rig.queue.cancel(cancelled)
    scheduled = rig.submit(delay_s=60)
    states = {done: "has succeeded", running: "is running", ready: "is queued"}
    states |= {scheduled: "is queued", cancelled: "was cancelled"}
    for job_id, state in states.items():
        before = rig.places(job_id)
        with pytest.raises(NotRetryable, match=f"job {job_id} {state};") as refused:
            rig.queue.retry(job_id)
        assert (refused.value.code, rig.places(job_id)) == ("not_retryable", before)
        assert f"`forge rerun {job_id}`" in refused.value.hint


def test_of_two_retries_at_once_one_is_granted(rig: Rig) -> None:
    job_id = _ended(rig, Reason.EXIT_CODE)

    def retry() -> bool:
        try:
            rig.queue.retry(job_id)
        except NotRetryable:
            return False
        return True

    assert sorted(at_once(*[partial(retry)] * 4)) == [False, False, False, True]
    assert rig.places(job_id) == ["ready"]
    assert rig.actions(job_id) == ["submitted", "retried"]


def test_a_retried_job_may_die_and_be_retried_again(rig: Rig) -> None:
    job_id = rig.submit(max_failures=1, backoff_s=0)
    worker = rig.worker()
    for turn in range(3):
        for state in (State.READY, State.DEAD):
            grant = worker.claim_one()
            assert rig.finish(grant, Reason.OOM).state == state
        assert grant.attempt == 2 * turn + 2
        rig.queue.retry(job_id)

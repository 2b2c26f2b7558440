"""Workers that renew a lease without doing what they were asked to: the sweep does it for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Phase, Reason, State
from forge_schema.sweeper.tick import Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

GRACE_S = 50
PATIENCE_S = Windows().overrun.total_seconds()
STORING_S = Windows().storing.total_seconds()
PREPARING_S = Windows().preparing.total_seconds()
ASKS: dict[str, Callable[[Rig, int], object]] = {
    "cancelled": lambda rig, job: rig.queue.cancel(job),
    "preempted": lambda rig, job: rig.queue.preempt(job),
    "timeout": lambda rig, _: rig.clock.advance(61),
}
BECOMES = {"cancelled": State.CANCELLED, "preempted": State.READY, "timeout": State.FAILED}


def running(rig: Rig, phase: Phase = Phase.RUNNING, **changes: object) -> tuple[Worker, Grant]:
    rig.submit(grace_s=GRACE_S, **changes)
    worker = rig.worker()
    grant = worker.claim_one()
    rig.queue.report(grant.fence, phase)
    return worker, grant


@pytest.mark.parametrize("asked", ASKS)
@pytest.mark.parametrize(
    ("phase", "patience_s"), [(Phase.RUNNING, PATIENCE_S), (Phase.FINISHING, STORING_S)]
)
def test_a_job_that_was_asked_to_end_ends(
    rig: Rig, asked: str, phase: Phase, patience_s: float
) -> None:
    worker, grant = running(rig, timeout_s=60 if asked == "timeout" else None)
    job = grant.fence.job_id
    ASKS[asked](rig, job)
    rig.tick.run()
    rig.queue.report(grant.fence, phase)
    rig.clock.advance(GRACE_S + patience_s)
    assert worker.renew(grant).standings == {grant.fence: asked}
    assert (rig.tick.run().overrun, rig.state(job)) == (0, State.RUNNING)
    rig.clock.advance(0.001)
    # A tick that ends it and loses the answer still ends it only once.
    rig.database.lose("overrun", "finish")
    assert (rig.tick.run().overrun, rig.state(job)) == (1, BECOMES[asked])
    assert worker.renew(grant).standings == {grant.fence: "lost"}
    assert not rig.finish(grant).accepted
    (attempt,) = rig.jobs.attempts(job)
    assert (attempt["reason"], attempt["detail"]) == (asked, "its worker did not end it")


@pytest.mark.parametrize("limit_s", [100, 10_000])
def test_a_time_limit_is_kept_though_the_job_was_asked_for_back(rig: Rig, limit_s: int) -> None:
    worker, grant = running(rig, timeout_s=limit_s)
    rig.queue.preempt(grant.fence.job_id)
    rig.tick.run()
    rig.clock.advance(GRACE_S + PATIENCE_S + 1)
    worker.renew(grant)
    assert rig.tick.run().overrun == 1
    late = limit_s == 100
    assert rig.state(grant.fence.job_id) == (State.FAILED if late else State.READY)
    (attempt,) = rig.jobs.attempts(grant.fence.job_id)
    assert attempt["reason"] == ("timeout" if late else "preempted")


def test_a_job_asked_for_back_that_is_given_back_in_time_is_preempted(rig: Rig) -> None:
    _, grant = running(rig, timeout_s=10)
    rig.queue.preempt(grant.fence.job_id)
    rig.clock.advance(20)
    rig.tick.run()
    assert rig.finish(grant, Reason.PREEMPTED).state == State.READY


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.PREPARING])
def test_a_job_that_is_never_started_is_given_to_another(rig: Rig, phase: Phase) -> None:
    worker, grant = running(rig, phase, backoff_s=0)
    rig.clock.advance(PREPARING_S)
    worker.renew(grant)
    assert rig.tick.run().overrun == 0
    rig.clock.advance(0.001)
    assert rig.tick.run().overrun == 1
    assert worker.renew(grant).standings == {grant.fence: "lost"}
    (attempt,) = rig.jobs.attempts(grant.fence.job_id)
    assert (attempt["reason"], attempt["detail"]) == ("start_failed", "its worker did not start it")
    again = worker.claim_one()
    # The first start that fails on a worker is free.
    assert (again.attempt, again.losses, again.failures) == (2, 0, 0)


def test_a_job_that_runs_is_not_taken_for_one_that_never_started(rig: Rig) -> None:
    worker, grant = running(rig)
    rig.clock.advance(PREPARING_S + 1)
    worker.renew(grant)
    assert rig.tick.run().overrun == 0


def test_a_cancel_asked_of_a_job_that_was_asked_for_back_counts(rig: Rig) -> None:
    worker, grant = running(rig)
    rig.queue.preempt(grant.fence.job_id)
    rig.tick.run()
    rig.queue.cancel(grant.fence.job_id)
    rig.clock.advance(GRACE_S + PATIENCE_S + 1)
    worker.renew(grant)
    assert rig.tick.run().overrun == 1
    assert rig.state(grant.fence.job_id) == State.CANCELLED

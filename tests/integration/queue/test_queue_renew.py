"""Renewing and reporting: who is heard, what is answered, and how long a lease lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.model.states import Command, Phase, Reason, Standing, State, WorkerStatus
from forge_schema.queue.queue import Queue, WorkerUnknown
from support.queue.rig import stale

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker


def test_a_renewed_lease_outlives_its_ttl(rig: Rig) -> None:
    worker, grant = _claimed(rig)
    for _ in range(5):
        rig.clock.advance(100)
        assert worker.renew(grant).standings == {grant.fence: Standing.OK}
        assert rig.tick.run().requeued == 0
    assert rig.row("SELECT expires_at FROM lease")["expires_at"] == rig.clock.now + rig.queue.ttl


def test_a_lease_that_is_not_listed_runs_out(rig: Rig) -> None:
    kept, forgotten = rig.submit_many(2)
    worker = rig.worker()
    first, _ = worker.claim(count=2)
    rig.clock.advance(100)
    worker.renew(first)
    rig.clock.advance(100)
    assert rig.tick.run().requeued == 1
    assert (rig.state(kept), rig.state(forgotten)) == (State.RUNNING, State.READY)


def test_a_lease_that_ran_out_can_be_saved_until_a_tick_takes_it(rig: Rig) -> None:
    worker, grant = _claimed(rig)
    rig.expire()
    assert worker.renew(grant).standings == {grant.fence: Standing.OK}
    assert rig.tick.run().requeued == 0
    rig.expire()
    rig.tick.run()
    assert worker.renew(grant).standings == {grant.fence: Standing.LOST}
    assert rig.places(grant.fence.job_id) == ["ready"]


def test_a_renewal_never_shortens_a_lease(rig: Rig) -> None:
    worker, grant = _claimed(rig)
    before = rig.row("SELECT expires_at FROM lease")
    short = Queue(rig.database, actor="worker", ttl=timedelta(seconds=1))
    short.renew(worker.id, worker.machine.boot_id, [grant.fence], WorkerStatus.BUSY)
    assert rig.row("SELECT expires_at FROM lease") == before


def test_each_lease_is_answered_for_itself(rig: Rig) -> None:
    rig.submit_many(5, timeout_s=60)
    worker = rig.worker()
    fine, cancelled, preempted, late, lost = worker.claim(count=5)
    rig.queue.report(late.fence, Phase.RUNNING)
    rig.clock.advance(61)
    rig.tick.run()
    rig.queue.cancel(cancelled.fence.job_id)
    rig.queue.preempt(preempted.fence.job_id)
    rig.finish(lost)
    answer = worker.renew(lost, late, preempted, cancelled, fine)
    assert answer.standings == {
        fine.fence: Standing.OK,
        cancelled.fence: Standing.CANCELLED,
        preempted.fence: Standing.PREEMPTED,
        late.fence: Standing.TIMEOUT,
        lost.fence: Standing.LOST,
    }


def test_an_old_and_a_new_lease_of_one_job_are_answered_apart(rig: Rig) -> None:
    worker, old = _claimed(rig)
    rig.expire()
    rig.tick.run()
    new = worker.claim_one()
    for listed in ((old, new), (new, old)):
        assert worker.renew(*listed).standings == {
            old.fence: Standing.LOST,
            new.fence: Standing.OK,
        }


@pytest.mark.parametrize("wrong", ["token", "nonce"])
def test_a_wrong_fence_renews_nothing(rig: Rig, wrong: str) -> None:
    worker, grant = _claimed(rig)
    fence = (
        stale(grant, token=grant.fence.token - 1)
        if wrong == "token"
        else stale(grant, nonce=uuid4())
    )
    rig.clock.advance(60)
    before = rig.row("SELECT expires_at FROM lease")
    assert worker.renew_fences([fence]).standings == {fence: Standing.LOST}
    assert rig.row("SELECT expires_at FROM lease") == before


def test_one_worker_cannot_renew_the_lease_of_another(rig: Rig) -> None:
    _, grant = _claimed(rig)
    rig.clock.advance(60)
    before = rig.row("SELECT expires_at FROM lease")
    assert rig.worker("other").renew(grant).standings == {grant.fence: Standing.LOST}
    assert rig.row("SELECT expires_at FROM lease") == before


def test_an_older_boot_is_refused_and_keeps_nothing_alive(rig: Rig) -> None:
    old, grant = _claimed(rig)
    new = rig.worker()
    assert new.id == old.id
    rig.clock.advance(60)
    with pytest.raises(WorkerUnknown):
        old.renew(grant)
    rig.clock.advance(61)
    assert rig.tick.run().requeued == 1


def test_a_new_boot_goes_on_with_the_leases_of_the_old_one(rig: Rig) -> None:
    _, grant = _claimed(rig)
    new = rig.worker()
    assert new.renew(grant).standings == {grant.fence: Standing.OK}
    assert rig.finish(grant).accepted


def test_a_worker_that_never_registered_is_unknown(rig: Rig) -> None:
    with pytest.raises(WorkerUnknown) as refused:
        rig.queue.renew(999, uuid4(), [], WorkerStatus.IDLE)
    assert (refused.value.code, bool(refused.value.hint)) == ("worker_unknown", True)


def test_a_renewal_tells_that_the_worker_lives_and_what_it_does(rig: Rig) -> None:
    worker = rig.worker()
    assert _worker(rig)["status"] == WorkerStatus.CONNECTING
    rig.clock.advance(30)
    assert worker.renew().standings == {}
    assert _worker(rig) | {"status": "idle", "silent_s": 0.0} == _worker(rig)
    rig.clock.advance(121)
    assert rig.tick.run().offline == 1
    assert _worker(rig)["status"] == WorkerStatus.OFFLINE
    worker.renew()
    assert _worker(rig)["status"] == WorkerStatus.IDLE


def test_a_drain_is_told_outlives_a_restart_and_keeps_new_jobs_away(rig: Rig) -> None:
    worker, grant = _claimed(rig)
    rig.submit()
    rig.registry.command(worker.id, Command.DRAIN)
    answer = worker.renew(grant)
    assert (answer.command, answer.standings) == ("drain", {grant.fence: Standing.OK})
    assert worker.renew(grant).command == "drain"
    assert (_worker(rig)["status"], worker.claim()) == (WorkerStatus.DRAINING, [])
    again = rig.worker()
    assert (again.renew(grant).command, again.claim()) == ("drain", [])
    rig.registry.command(worker.id, None)
    assert (again.renew(grant).command, len(again.claim())) == (None, 1)
    assert rig.finish(grant).accepted


def test_a_stop_is_for_one_boot_only(rig: Rig) -> None:
    worker = rig.worker()
    rig.registry.command(worker.id, Command.STOP)
    assert worker.renew().command == "stop"
    assert rig.worker().renew().command is None


def test_a_report_shows_in_the_state_of_the_job(rig: Rig) -> None:
    _, grant = _claimed(rig)
    rig.clock.advance(5)
    assert rig.queue.report(grant.fence, Phase.PREPARING) == Standing.OK
    assert rig.row("SELECT started_at FROM lease")["started_at"] is None
    rig.queue.report(grant.fence, Phase.RUNNING, progress=0.25, devices=["GPU-1"])
    started = rig.clock.now
    rig.clock.advance(5)
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.queue.report(grant.fence, Phase.FINISHING)
    shown = rig.jobs.job(grant.fence.job_id)
    assert (shown["phase"], shown["progress"], shown["started_at"]) == ("finishing", 0.25, started)
    assert rig.row("SELECT devices FROM lease")["devices"] == ["GPU-1"]


def test_the_time_limit_runs_from_the_first_start_of_each_attempt(rig: Rig) -> None:
    worker, grant = _claimed(rig, timeout_s=60, backoff_s=0)
    rig.queue.report(grant.fence, Phase.PREPARING)
    rig.clock.advance(100)
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(59)
    rig.queue.report(grant.fence, Phase.RUNNING)
    assert rig.tick.run().overdue == 0
    rig.finish(grant, Reason.EXIT_CODE)
    grant = worker.claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(60)
    assert rig.tick.run().overdue == 0
    rig.clock.advance(1)
    assert rig.tick.run().overdue == 1
    assert rig.queue.report(grant.fence, Phase.RUNNING) == Standing.TIMEOUT


@pytest.mark.parametrize(
    ("told", "kept"), [(-1.0, 0.0), (0.5, 0.5), (7.0, 1.0), (float("nan"), None)]
)
def test_progress_is_a_share(rig: Rig, told: float, kept: float | None) -> None:
    _, grant = _claimed(rig)
    rig.queue.report(grant.fence, Phase.RUNNING, progress=told)
    assert rig.jobs.job(grant.fence.job_id)["progress"] == kept


def test_a_report_of_a_lost_lease_changes_nothing(rig: Rig) -> None:
    worker, old = _claimed(rig)
    rig.expire()
    rig.tick.run()
    worker.claim_one()
    before = rig.row("SELECT * FROM lease")
    assert rig.queue.report(old.fence, Phase.FINISHING, progress=1.0) == Standing.LOST
    assert rig.row("SELECT * FROM lease") == before


def _claimed(rig: Rig, **changes: object) -> tuple[Worker, Grant]:
    rig.submit(**changes)
    worker = rig.worker()
    return worker, worker.claim_one()


def _worker(rig: Rig) -> dict[str, object]:
    (row,) = rig.registry.workers()
    return row

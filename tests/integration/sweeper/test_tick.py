"""A tick of the sweeper: changes due to time alone, once, by the database clock, beside others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.model.lease import End, Grant
from forge_schema.model.states import Phase, Reason, State, WorkerKind, WorkerStatus
from forge_schema.queue.queue import Queue, WorkerUnknown
from forge_schema.sweeper.tick import BATCH, BRAKE, Moved, Tick
from support.at_once import at_once
from support.queue.rig import CENTURY

if TYPE_CHECKING:
    from support.queue.rig import Rig

NOTHING = Moved(requeued=0, promoted=0, overdue=0, offline=0, reaped=0)


def test_an_expired_lease_is_requeued_and_its_history_says_why(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    first = worker.claim_one()
    rig.expire()
    assert rig.tick.run().requeued == 1
    assert rig.places(job_id) == ["ready"]
    (attempt,) = rig.jobs.attempts(job_id)
    assert (attempt["reason"], attempt["token"]) == ("worker_lost", first.fence.token)
    second = worker.claim_one()
    assert (second.attempt, second.losses) == (2, 1)
    assert second.fence.token > first.fence.token


def test_no_lease_is_requeued_before_it_ran_out(rig: Rig) -> None:
    rig.submit()
    rig.worker().claim_one()
    rig.clock.advance(rig.queue.ttl.total_seconds())
    assert rig.tick.run().requeued == 0
    rig.clock.advance(0.001)
    assert rig.tick.run().requeued == 1
    assert rig.tick.run() == NOTHING


def test_a_lease_renewed_after_it_was_seen_as_expired_stays(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    rig.expire()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.renew(worker.id, worker.machine.boot_id, [grant.fence], WorkerStatus.BUSY)
            swept = pool.submit(rig.tick.requeue)
            rig.wait_until_blocked()
        assert swept.result(timeout=120) == 0
    assert rig.state(job_id) == State.RUNNING


def test_a_job_finished_while_the_tick_waits_is_not_moved(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.expire()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(grant.fence, Reason.SUCCEEDED)])
            swept = pool.submit(rig.tick.requeue)
            rig.wait_until_blocked()
        assert swept.result(timeout=120) == 0
    assert rig.places(job_id) == ["outcome"]
    assert rig.state(job_id) == State.SUCCEEDED


def test_a_finish_that_waits_for_the_tick_is_lost(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.expire()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            assert Tick(queue, every=CENTURY).requeue() == 1
            late = pool.submit(rig.finish, grant)
            rig.wait_until_blocked()
        assert not late.result(timeout=120).accepted
    assert rig.places(job_id) == ["ready"]


def test_ticks_and_finishes_at_once_move_each_job_once(rig: Rig) -> None:
    job_ids = rig.submit_many(60)
    grants = rig.worker().claim(count=60)
    rig.clock.advance(2 * rig.queue.ttl.total_seconds() + 1)

    def finish_all() -> int:
        return sum(rig.finish(grant).accepted for grant in grants)

    finished, *requeued = at_once(finish_all, rig.tick.requeue, rig.tick.requeue)
    assert finished + sum(requeued) == len(job_ids)
    assert (rig.count("outcome"), rig.count("ready")) == (finished, sum(requeued))
    assert rig.count("attempt") == len(job_ids)


def test_sweepers_at_once_move_each_lease_and_each_due_job_once(rig: Rig) -> None:
    rig.submit_many(80)
    rig.worker().claim(count=80)
    rig.submit_many(80, delay_s=5)
    rig.clock.advance(2 * rig.queue.ttl.total_seconds() + 1)
    queues = [Queue(rig.database, actor=f"sweeper {n}") for n in range(4)]
    sweeps = [Tick(queue, every=CENTURY) for queue in queues]
    swept = at_once(*[partial(sweep.run) for sweep in sweeps])
    assert sum(tick.requeued for tick in swept) == 80
    assert sum(tick.promoted for tick in swept) == 80
    assert (rig.count("ready"), rig.count("attempt")) == (160, 80)
    assert rig.row("SELECT max(losses) AS losses FROM ready")["losses"] == 1


def test_a_sweeper_killed_inside_its_transaction_leaves_everything_whole(rig: Rig) -> None:
    job_id, later = rig.submit(), rig.submit(delay_s=1)
    rig.worker().claim_one()
    rig.expire()
    with pytest.raises(psycopg.OperationalError):
        _sweep_and_die(rig)
    assert (rig.places(job_id), rig.places(later)) == (["lease"], ["scheduled"])
    assert rig.tick.run() == Moved(requeued=1, promoted=1, overdue=0, offline=1, reaped=0)
    assert (rig.places(job_id), rig.places(later)) == (["ready"], ["ready"])


def test_a_tick_moves_more_than_one_batch(rig: Rig) -> None:
    rig.submit_many(2 * BATCH + 7, delay_s=1)
    rig.clock.advance(1)
    assert rig.tick.run().promoted == 2 * BATCH + 7
    rig.worker().claim(count=2 * BATCH + 7)
    rig.clock.advance(2 * rig.queue.ttl.total_seconds() + 1)
    assert rig.tick.run().requeued == 2 * BATCH + 7


@pytest.mark.parametrize(
    ("silent", "alive", "at_once"),
    [
        (BRAKE, 0, True),
        (BRAKE + 1, 0, False),
        (BRAKE + 1, BRAKE, False),
        (BRAKE + 1, BRAKE + 1, True),
    ],
)
def test_when_most_leases_run_out_together_the_tick_gives_them_one_more_ttl(
    rig: Rig, silent: int, alive: int, *, at_once: bool
) -> None:
    rig.submit_many(silent + alive)
    worker = rig.worker()
    grants = worker.claim(count=silent)
    rig.clock.advance(rig.queue.ttl.total_seconds() / 2)
    if alive:
        assert len(worker.claim(count=alive)) == alive
    rig.clock.advance(rig.queue.ttl.total_seconds() / 2 + 1)
    assert rig.tick.run().requeued == (silent if at_once else 0)
    if not at_once and not alive:
        saved = worker.renew(grants[0])
        assert saved.standings == {grants[0].fence: "ok"}
        rig.clock.advance(rig.queue.ttl.total_seconds() - 1)
        assert rig.tick.run().requeued == 0
        rig.clock.advance(1)
        assert rig.tick.run().requeued == silent - 1


def test_leases_cut_off_together_run_out_one_by_one_and_are_braked_from_the_first(
    rig: Rig,
) -> None:
    worker = rig.worker()
    for _ in range(BRAKE + 5):
        rig.submit()
        worker.claim_one()
        rig.clock.advance(2)
    ttl_s = rig.queue.ttl.total_seconds()
    rig.clock.advance(ttl_s - 2 * (BRAKE + 5) + 1)
    assert rig.tick.run().requeued == 0
    assert Tick(Queue(rig.database, actor="eager"), every=CENTURY, brake=50).requeue() == 1
    rig.clock.advance(ttl_s + 2)
    assert rig.tick.run().requeued == 1
    rig.clock.advance(2 * (BRAKE + 5))
    assert rig.tick.run().requeued == BRAKE + 3


def test_a_few_leases_running_out_together_are_requeued_at_once(rig: Rig) -> None:
    rig.submit_many(BRAKE)
    rig.worker().claim(count=BRAKE)
    rig.expire()
    assert rig.tick.run().requeued == BRAKE


def test_a_job_past_its_time_limit_is_asked_to_end_once(rig: Rig) -> None:
    job_id = rig.submit(timeout_s=10)
    worker = rig.worker()
    grant = worker.claim_one()
    rig.clock.advance(50)
    assert rig.tick.run().overdue == 0
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(11)
    assert [rig.tick.run().overdue for _ in range(2)] == [1, 0]
    assert worker.renew(grant).standings == {grant.fence: "timeout"}
    assert rig.actions(job_id) == ["submitted", "asked to time out"]


def test_a_cancel_is_not_turned_into_a_time_out(rig: Rig) -> None:
    job_id = rig.submit(timeout_s=10)
    grant = rig.worker().claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.queue.cancel(job_id)
    rig.clock.advance(11)
    assert rig.tick.run().overdue == 0
    assert rig.finish(grant, Reason.EXIT_CODE).state == State.CANCELLED


def test_a_silent_worker_is_offline_and_its_return_is_heard(rig: Rig) -> None:
    silent, alive = rig.worker("silent"), rig.worker("alive")
    rig.clock.advance(120)
    assert rig.tick.run().offline == 0
    alive.renew()
    rig.clock.advance(1)
    assert [rig.tick.run().offline for _ in range(2)] == [1, 0]
    assert _statuses(rig) == {"silent": "offline", "alive": "idle"}
    silent.renew()
    assert _statuses(rig)["silent"] == "idle"


def test_ephemeral_workers_long_gone_are_reaped_and_persistent_ones_kept(rig: Rig) -> None:
    for kind in WorkerKind:
        rig.worker(kind.value, kind=kind).renew()
    rig.clock.advance(121)
    rig.tick.run()
    rig.clock.advance(3600 - 121)
    assert rig.tick.run().reaped == 0
    rig.clock.advance(1)
    assert rig.tick.run().reaped == 1
    assert set(_statuses(rig)) == {"persistent"}
    (reaped,) = rig.rows("SELECT actor, detail FROM event WHERE action = 'reaped'")
    assert (reaped["actor"], reaped["detail"]) == ("sweeper", {"name": "ephemeral"})


def test_a_worker_that_never_connected_is_reaped(rig: Rig) -> None:
    rig.worker("never")
    rig.worker("connected").renew()
    rig.clock.advance(300)
    assert rig.tick.run().reaped == 0
    rig.clock.advance(1)
    assert rig.tick.run().reaped == 1
    assert set(_statuses(rig)) == {"connected"}


@pytest.mark.parametrize("kind", WorkerKind)
def test_the_holder_of_a_lease_is_never_reaped(rig: Rig, kind: WorkerKind) -> None:
    worker = rig.worker(kind=kind)
    rig.submit()
    grant = worker.claim_one()
    # Held for so long without a sweep in between, as after a long outage.
    rig.clock.advance(7200)
    rig.tick.mark_offline()
    assert (_statuses(rig), rig.tick.reap()) == ({"w": "offline"}, 0)
    rig.finish(grant)
    assert rig.tick.reap() == 1


def test_a_reaped_worker_has_to_register_again(rig: Rig) -> None:
    worker = rig.worker(kind=WorkerKind.EPHEMERAL)
    rig.clock.advance(3601)
    rig.tick.run()
    rig.tick.run()
    with pytest.raises(WorkerUnknown):
        worker.renew()
    assert rig.worker(kind=WorkerKind.EPHEMERAL).renew().standings == {}


def test_a_worker_that_disconnects_is_offline_but_a_newer_boot_is_not(rig: Rig) -> None:
    old = rig.worker()
    rig.registry.disconnect(old.id, old.machine.boot_id)
    assert _statuses(rig) == {"w": "offline"}
    new = rig.worker()
    new.renew()
    rig.registry.disconnect(old.id, old.machine.boot_id)
    assert _statuses(rig) == {"w": "idle"}


def test_history_goes_to_the_partition_of_its_month(rig: Rig) -> None:
    rig.clock.set(datetime(2032, 12, 31, 23, 59, tzinfo=UTC))
    rig.tick.run()
    rig.finish(_claim(rig), Reason.IMAGE_MISSING)
    rig.clock.advance(120)
    rig.finish(_claim(rig), Reason.IMAGE_MISSING)
    homes = rig.rows("SELECT tableoid::regclass::text AS home FROM attempt_row ORDER BY token")
    assert [row["home"] for row in homes] == ["attempt_row_2032_12", "attempt_row_2033_01"]
    assert rig.tick.run() == NOTHING


def test_history_of_a_month_without_a_partition_is_kept_too(rig: Rig) -> None:
    rig.clock.set(datetime(2040, 1, 1, tzinfo=UTC))
    job_id = rig.submit()
    rig.finish(rig.worker().claim_one(), Reason.PREEMPTED)
    rig.tick.run()
    assert [row["reason"] for row in rig.jobs.attempts(job_id)] == ["preempted"]


def _claim(rig: Rig) -> Grant:
    rig.submit()
    return rig.worker().claim_one()


def _statuses(rig: Rig) -> dict[str, str]:
    return {row["name"]: row["status"] for row in rig.registry.workers()}


def _sweep_and_die(rig: Rig) -> None:
    with rig.uncommitted() as queue:
        sweep = Tick(queue, every=CENTURY)
        assert (sweep.requeue(), sweep.promote()) == (1, 1)
        rig.break_connections()

"""Runs on several machines under races, deaths, repeats and requests to stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.model.attempt_records import LogChunkRecord
from forge_schema.model.lease import End, Ended
from forge_schema.model.states import Phase, Reason, Standing, State
from support.at_once import at_once
from support.gangs.runs import budgets, ended, formed, gang, running, settled, stop
from support.queue.rig import stale

if TYPE_CHECKING:
    from support.queue.rig import Rig

RESET = "torch.distributed: Connection closed by peer [10.0.0.7]:41234"


def test_the_check_of_a_settled_run_sees_what_was_left_behind(rig: Rig) -> None:
    run = running(rig, nodes=2)
    assert len(rig.rows("SELECT FROM lease WHERE job_id = %s", run.job_id)) == 2
    for rank in range(2):
        run.end(rank)
    settled(run, State.SUCCEEDED)
    rig.rows("INSERT INTO slot VALUES ('queue_jobs', 'default', 1, %s)", run.job_id)
    with pytest.raises(AssertionError):
        settled(run, State.SUCCEEDED)


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.EXIT_CODE, Reason.PREEMPTED])
def test_ends_of_all_members_at_once_settle_the_run_once(rig: Rig, reason: Reason) -> None:
    for _ in range(8):
        run = running(rig, nodes=6)
        run.start()
        answers = at_once(*(partial(run.end, rank, reason, exit_code=1) for rank in range(6)))
        assert all(answer.accepted for answer in answers)
        state = rig.state(run.job_id)
        assert [answer.state for answer in answers].count(state) >= 1
        settled(run, state)
        assert rig.tick.run().settled == 0


def test_a_cancel_races_with_the_ends_of_all_members(rig: Rig) -> None:
    states = set()
    for _ in range(8):
        run = running(rig, nodes=4)
        run.start()
        at_once(
            *(partial(run.end, rank) for rank in range(4)),
            partial(rig.queue.cancel, run.job_id),
        )
        states.add(rig.state(run.job_id))
        settled(run, State.SUCCEEDED)
    assert states == {State.SUCCEEDED}


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.OOM, Reason.CANCELLED])
def test_an_end_repeated_answers_the_same_and_changes_nothing(rig: Rig, reason: Reason) -> None:
    run = running(rig)
    first = run.end(1, reason)
    assert [run.end(1, reason) for _ in range(2)] == [first, first]
    assert not run.end(1, Reason.STALLED).accepted
    run.end(0, reason)
    last = run.end(2, reason)
    before = run.members()
    assert run.end(2, reason) == last
    assert run.end(1, reason) == last
    assert run.members() == before


def test_an_end_with_a_wrong_fence_is_lost(rig: Rig) -> None:
    run = running(rig)
    fence = run.fences[1]
    for wrong in (
        type(fence)(fence.job_id, fence.token, uuid4()),
        type(fence)(fence.job_id, run.fences[0].token, fence.nonce),
    ):
        told = rig.queue.finish([End(wrong, Reason.OOM)])
        assert told == [Ended(run.job_id, accepted=False)]
    assert run.standing(0) is Standing.OK


def test_an_end_is_taken_along_with_a_claim(rig: Rig) -> None:
    run = running(rig)
    single = rig.submit()
    worker = run.workers[0]
    one = rig.queue.claim(worker.lanes, worker.free)[0]
    following = rig.submit()
    ends = [End(run.fences[0], Reason.SUCCEEDED), End(one.fence, Reason.SUCCEEDED)]
    told, (granted,) = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert [answer.state for answer in told] == [State.RUNNING, State.SUCCEEDED]
    assert (rig.state(single), granted.job_id) == (State.SUCCEEDED, following)
    told, _ = rig.queue.finish_and_claim(
        [End(run.fences[1], Reason.OOM)], run.workers[1].lanes, worker.free, count=0
    )
    assert told[0].accepted
    assert run.standing(2) is Standing.ENDED


def test_a_run_whose_last_member_did_not_settle_it_is_settled_by_the_sweeper(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(rig)
    with monkeypatch.context() as patch:
        # The process dies once the last end is stored.
        patch.setattr(rig.queue.runs, "_settle_now", lambda _job_id: None)
        for rank in range(3):
            assert run.end(rank).state is State.RUNNING
    assert rig.state(run.job_id) is State.RUNNING
    rig.expire()
    assert rig.tick.run().settled == 1
    settled(run, State.SUCCEEDED)
    assert rig.tick.run().settled == 0


def test_the_same_end_repeated_settles_a_run_that_was_left(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(rig)
    with monkeypatch.context() as patch:
        patch.setattr(rig.queue.runs, "_settle_now", lambda _job_id: None)
        for rank in range(3):
            run.end(rank)
    assert run.end(1).state is State.SUCCEEDED
    settled(run, State.SUCCEEDED)


def test_a_settlement_that_fails_keeps_the_end(rig: Rig) -> None:
    run = running(rig)
    run.end(0)
    run.end(1)
    rig.rows(
        "INSERT INTO outcome (job_id, state, reason, attempt, finished_at)"
        " VALUES (%s, 'cancelled', 'cancelled', 1, now())",
        run.job_id,
    )
    assert run.end(2) == Ended(
        run.job_id, accepted=True, reason=Reason.SUCCEEDED, state=State.RUNNING
    )
    # As after a restore: the job has ended, and its run is set aside with all its leases.
    assert rig.tick.run().settled == 0
    assert rig.rows("SELECT FROM lease") == []
    assert rig.count("set_aside") == 3
    assert rig.state(run.job_id) is State.CANCELLED


def test_a_member_whose_lease_ran_out_ends_the_run(rig: Rig) -> None:
    run = running(rig)
    run.start()
    rig.clock.advance(rig.queue.ttl.total_seconds() - 1)
    assert [run.standing(rank) for rank in (0, 2)] == [Standing.OK] * 2
    rig.clock.advance(2)
    assert rig.tick.run().requeued == 1
    assert rig.state(run.job_id) is State.RUNNING
    stop(run, 0)
    stop(run, 2)
    settled(run, State.READY)
    assert run.reasons() == ["run_ended", "worker_lost", "run_ended"]


def test_a_renewal_at_the_last_moment_saves_a_member(rig: Rig) -> None:
    run = running(rig)
    rig.expire()
    assert [run.standing(rank) for rank in range(3)] == [Standing.OK] * 3
    late = [End(fence, Reason.WORKER_LOST) for fence in run.fences]
    assert rig.queue.finish(late, expired_only=True) == []
    assert run.standing(0) is Standing.OK


def test_a_run_that_lost_every_worker_is_ready_again(rig: Rig) -> None:
    run = running(rig, nodes=12)
    rig.expire()
    assert rig.tick.requeue() == 0
    # So many leases at once suggest a fault of the network, and get as long again.
    rig.expire()
    assert rig.tick.requeue() == 12
    settled(run, State.READY)
    assert set(run.reasons()) == {"worker_lost"}
    assert budgets(rig, run.job_id) == (0, 1, 0)


def test_a_member_that_does_not_stop_is_ended(rig: Rig) -> None:
    run = running(rig, grace_s=10)
    run.start()
    run.end(0, Reason.OOM)
    rig.tick.run()
    for _ in range(5):
        rig.clock.advance(70)
        for rank in (1, 2):
            run.standing(rank)
    assert rig.tick.run().overrun == 2
    settled(run, State.SCHEDULED)
    assert run.reasons() == ["oom", "run_ended", "run_ended"]


def test_a_zombie_member_writes_nothing_after_its_end(rig: Rig) -> None:
    run = running(rig)
    run.start()
    rig.clock.advance(rig.queue.ttl.total_seconds() - 1)
    run.standing(0)
    run.standing(2)
    rig.clock.advance(2)
    rig.tick.requeue()
    # The run goes on until the others have stopped, and so does its zombie.
    chunk = LogChunkRecord(0, "k", 0, 1, "ab" * 32)
    assert run.standing(1) is Standing.LOST
    assert not rig.records.add_log_chunk(run.fences[1], chunk)
    assert not rig.records.add_metrics(run.fences[1], [], progress=0.5)
    assert not rig.records.add_samples(run.fences[1], [])
    assert not rig.records.add_result(run.fences[1], {})
    assert not rig.records.add_artifacts(run.fences[1], [])
    assert not rig.records.add_tests(run.fences[1], [])
    assert rig.queue.report(run.fences[1], Phase.RUNNING) is Standing.LOST
    assert rig.queue.gather(run.fences[1], 1, {}).standing is Standing.LOST
    late = run.end(1)
    assert (late.accepted, late.reason) == (False, Reason.WORKER_LOST)
    assert rig.records.add_log_chunk(run.fences[0], chunk)
    stop(run, 0)
    stop(run, 2)
    settled(run, State.READY)
    again = formed(rig, run.job_id, run.workers)
    late = run.end(1)
    assert (late.accepted, late.reason) == (False, Reason.WORKER_LOST)
    assert run.standing(1) is Standing.LOST
    assert [again.standing(rank) for rank in range(3)] == [Standing.OK] * 3
    for rank in range(3):
        again.end(rank)
    settled(again, State.SUCCEEDED)
    assert rig.jobs.job(run.job_id)["attempt"] == 2


def test_a_preempted_member_lets_all_save_and_charges_a_preemption(rig: Rig) -> None:
    run = running(rig)
    run.start()
    assert rig.queue.report(run.fences[2], Phase.STOPPING) is Standing.OK
    assert [run.standing(rank) for rank in (0, 1)] == [Standing.ENDED] * 2
    assert rig.queue.report(run.fences[2], Phase.STOPPING) is Standing.OK
    # Its neighbours stop first, and one of them breaks while it does.
    stop(run, 0)
    ended(run, (1, Reason.EXIT_CODE, 1, "RuntimeError: shutting down"))
    ended(run, (2, Reason.PREEMPTED, None, "spot notice"))
    settled(run, State.READY)
    assert budgets(rig, run.job_id) == (0, 0, 1)
    assert run.reasons() == ["run_ended", "run_ended", "preempted"]


def test_members_that_begin_to_stop_at_once_do_not_wait_for_each_other(rig: Rig) -> None:
    for _ in range(8):
        run = running(rig, nodes=6)
        run.start()
        at_once(*(partial(rig.queue.report, f, Phase.STOPPING) for f in run.fences))
        told = [run.standing(rank) for rank in range(6)]
        assert set(told) <= {Standing.OK, Standing.ENDED}
        assert told.count(Standing.ENDED) >= 5


def test_preempting_a_job_asks_every_member(rig: Rig) -> None:
    run = running(rig)
    run.end(0, Reason.SUCCEEDED)
    assert rig.queue.preempt(run.job_id)
    assert [run.standing(rank) for rank in (1, 2)] == [Standing.PREEMPTED] * 2
    ended(run, (1, Reason.PREEMPTED, None, None), (2, Reason.PREEMPTED, None, None))
    settled(run, State.READY)
    assert budgets(rig, run.job_id) == (0, 0, 1)


def test_cancelling_a_job_asks_every_member(rig: Rig) -> None:
    run = running(rig)
    run.start()
    assert rig.queue.cancel(run.job_id) is State.RUNNING
    assert [run.standing(rank) for rank in range(3)] == [Standing.CANCELLED] * 3
    ended(run, (1, Reason.CANCELLED, None, None), (0, Reason.EXIT_CODE, 1, RESET))
    assert run.standing(2) is Standing.CANCELLED
    ended(run, (2, Reason.CANCELLED, None, None))
    settled(run, State.CANCELLED)


def test_a_cancel_wins_over_a_failure_that_has_not_settled(rig: Rig) -> None:
    run = running(rig)
    run.end(1, Reason.EXIT_CODE, exit_code=1)
    rig.queue.cancel(run.job_id)
    ended(run, (0, Reason.CANCELLED, None, None), (2, Reason.CANCELLED, None, None))
    settled(run, State.CANCELLED)


def test_a_success_of_all_wins_over_a_cancel(rig: Rig) -> None:
    run = running(rig)
    run.end(1)
    rig.queue.cancel(run.job_id)
    run.end(0)
    run.end(2)
    settled(run, State.SUCCEEDED)


def test_a_time_limit_asks_every_member_and_fails_the_job(rig: Rig) -> None:
    run = running(rig, timeout_s=100)
    rig.queue.report(run.fences[0], Phase.RUNNING)
    rig.clock.advance(60)
    for rank in (1, 2):
        rig.queue.report(run.fences[rank], Phase.RUNNING)
    for rank in range(3):
        run.standing(rank)
    rig.clock.advance(50)
    assert rig.tick.ask_overdue() == 3
    assert rig.tick.ask_overdue() == 0
    assert [run.standing(rank) for rank in range(3)] == [Standing.TIMEOUT] * 3
    ended(run, (1, Reason.EXIT_CODE, 1, RESET), (0, Reason.TIMEOUT, None, "longer than 100 s"))
    ended(run, (2, Reason.TIMEOUT, None, "longer than 100 s"))
    settled(run, State.FAILED)
    assert rig.jobs.job(run.job_id)["reason"] == "timeout"


def test_the_same_quick_failure_of_two_runs_ends_the_job(rig: Rig) -> None:
    run = running(rig, backoff_s=0)
    for failing in (1, 2):
        run.start()
        ended(run, (failing, Reason.EXIT_CODE, 1, "ValueError: shapes (3, 4) and (5,)"))
        for other in {0, 1, 2} - {failing}:
            stop(run, other)
        if failing == 1:
            settled(run, State.READY)
            run = formed(rig, run.job_id, run.workers)
    settled(run, State.FAILED)
    detail = rig.jobs.job(run.job_id)["detail"]
    assert detail.startswith("rank 2 on gpu-2 failed first: failed the same way twice: ValueError")


def test_a_retry_after_a_run_failed_counts_its_attempts(rig: Rig) -> None:
    run = running(rig, max_failures=0)
    ended(run, (0, Reason.OOM, None, None))
    stop(run, 1)
    stop(run, 2)
    settled(run, State.DEAD)
    rig.queue.retry(run.job_id)
    again = formed(rig, run.job_id, run.workers)
    for rank in range(3):
        again.end(rank)
    settled(again, State.SUCCEEDED)
    assert rig.jobs.job(run.job_id)["attempt"] == 2


def test_a_dependant_is_released_once_when_the_whole_run_is_over(rig: Rig) -> None:
    run = running(rig)
    after = rig.submit(after_ok=[run.job_id])
    run.end(0)
    run.end(1)
    assert rig.state(after) is State.HELD
    run.end(2)
    assert rig.state(after) is State.READY


def test_runs_do_not_disturb_each_other(rig: Rig) -> None:
    workers = [rig.worker(f"gpu-{rank}") for rank in range(3)]
    one = formed(rig, gang(rig, 3), workers)
    other = formed(rig, gang(rig, 3), workers[::-1])
    ended(one, (1, Reason.OOM, None, None))
    assert [other.standing(rank) for rank in range(3)] == [Standing.OK] * 3
    ends = [End(one.fences[0], Reason.RUN_ENDED), End(other.fences[2], Reason.SUCCEEDED)]
    assert [answer.accepted for answer in rig.queue.finish(ends)] == [True, True]
    stop(one, 2)
    settled(one, State.SCHEDULED)
    other.end(0)
    other.end(1)
    settled(other, State.SUCCEEDED)


def test_a_single_job_ends_with_the_statements_that_it_always_had(rig: Rig) -> None:
    rig.submit()
    grant = rig.worker().claim_one()
    rig.database.names()
    rig.finish(grant, Reason.OOM)
    assert rig.database.names() == ["finish"]
    rig.queue.finish([End(stale(grant, nonce=uuid4()), Reason.OOM)])
    assert rig.database.names() == ["finish", "members_among", "ended"]

"""A cap on how many jobs of a sweep run at once: whose turn it is, what ends a turn, and races."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.model.job import IdempotencyConflict
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, State
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.queue.queue import NotRetryable
from forge_schema.read.runs import Benchmarks, SweepUncapped, SweepUnknown
from pydantic import ValidationError
from support.queue.rig import spec
from support.waiting import eventually

if TYPE_CHECKING:
    from forge_schema.queue.queue import Queue
    from support.queue.rig import Rig, Worker

REASONS = ("succeeded", "exit_code", "preempted")
ENDED = "SELECT job_id FROM outcome WHERE reason <> 'exit_code'"
OUT = """
    SELECT job_id FROM ready
    UNION ALL SELECT job_id FROM scheduled
    UNION ALL SELECT job_id FROM lease
    ORDER BY job_id
"""


def sweep(rig: Rig, jobs: int, parallel: int = 2, **changes: Any) -> list[int]:  # noqa: ANN401
    return rig.submit_many(jobs, sweep="s", parallel=parallel, **changes)


def states(rig: Rig, jobs: list[int]) -> str:
    """Return the first letters of the jobs' states."""
    assert all(len(rig.places(job)) == 1 for job in jobs)
    return "".join(rig.state(job).value[:2] + " " for job in jobs).strip()


def agrees(rig: Rig) -> bool:
    """Tell whether exactly the jobs that are out have a turn."""
    return rig.rows("SELECT job_id FROM turn ORDER BY 1") == rig.rows(OUT)


def capped(rig: Rig, parallel: int, queue: Queue | None = None) -> dict[str, int]:
    """Change the cap of ann's sweep; return how many of its jobs are in each state."""
    database = (queue or rig.queue).database
    return Benchmarks(database, owner="ann", actor="user:ann").set_parallel("s", parallel)


def cancel(queue: Queue, jobs: list[int]) -> None:
    """Cancel jobs together."""
    JobActs(queue.database, owner=None, actor="user:ann").cancel_each(jobs)


def test_jobs_are_let_go_in_the_order_of_submission(rig: Rig) -> None:
    jobs = sweep(rig, 5)
    worker = rig.worker()
    assert states(rig, jobs) == "re re he he he"
    assert rig.actions(jobs[1]) == ["submitted", "released"]
    first, second = worker.claim(5)
    rig.finish(second)
    assert states(rig, jobs) == "ru su re he he"
    rig.finish(first, Reason.TIMEOUT)
    assert states(rig, jobs)[6:] == "re re he"
    assert agrees(rig)
    for _ in range(3):
        rig.finish(worker.claim_one())
    assert (rig.count("turn"), rig.count("held")) == (0, 0)


@pytest.mark.parametrize("reason", [Reason.EXIT_CODE, Reason.PREEMPTED])
def test_a_job_that_is_tried_again_keeps_its_turn(rig: Rig, reason: Reason) -> None:
    jobs = sweep(rig, 2, 1, max_failures=1, backoff_s=60)
    rig.finish(rig.worker().claim_one(), reason)
    assert states(rig, jobs) in ("sc he", "re he")
    assert agrees(rig)


def test_the_failure_of_the_last_attempt_ends_a_turn(rig: Rig) -> None:
    jobs = sweep(rig, 2, 1, max_losses=0)
    rig.worker().claim_one()
    rig.expire()
    rig.tick.run()
    assert states(rig, jobs) == "de re"


def test_a_retried_job_waits_for_a_turn_and_is_next(rig: Rig) -> None:
    jobs = sweep(rig, 4, 1, max_failures=0)
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.EXIT_CODE)
    rig.queue.retry(jobs[0])
    assert states(rig, jobs) == "he re he he"
    rig.finish(worker.claim_one())
    assert states(rig, jobs) == "re su he he"
    grant = worker.claim_one()
    assert (grant.job_id, grant.attempt) == (jobs[0], 2)
    assert agrees(rig)


def test_a_retry_of_a_sweep_without_others_goes_at_once(rig: Rig) -> None:
    (job,) = sweep(rig, 1, 1, max_failures=0)
    rig.finish(rig.worker().claim_one(), Reason.EXIT_CODE)
    rig.queue.retry(job)
    assert rig.state(job) == State.READY
    assert agrees(rig)


def test_cancelled_jobs_leave_the_line(rig: Rig) -> None:
    jobs = sweep(rig, 5, 1)
    rig.queue.cancel(jobs[1])
    assert states(rig, jobs) == "re ca he he he"
    rig.queue.cancel(jobs[0])
    assert states(rig, jobs) == "ca ca re he he"
    cancel(rig.queue, jobs)
    assert states(rig, jobs) == "ca ca ca ca ca"
    assert (rig.count("turn"), rig.count("held")) == (0, 0)


def test_a_job_waits_for_others_first_and_holds_no_turn_meanwhile(rig: Rig) -> None:
    parent = rig.submit(priority=1)
    (waits,) = sweep(rig, 1, 1, after_ok=[parent])
    others = sweep(rig, 2, 1)
    assert states(rig, [waits, *others]) == "he re he"
    worker = rig.worker()
    rig.finish(worker.claim_one())
    assert states(rig, [waits, *others]) == "he re he"
    rig.finish(worker.claim_one())
    assert states(rig, [waits, *others]) == "re su he"
    assert rig.count("turn") == 1


def test_a_job_whose_dependency_failed_takes_no_turn(rig: Rig) -> None:
    parent = rig.submit(max_failures=0, priority=1)
    jobs = [*sweep(rig, 2, 1, after_ok=[parent]), *sweep(rig, 1, 1, after_any=[parent])]
    rig.finish(rig.worker().claim_one(), Reason.EXIT_CODE)
    assert states(rig, jobs) == "ca ca re"


def test_one_end_can_meet_a_dependency_and_give_its_turn(rig: Rig) -> None:
    (parent,) = sweep(rig, 1, 1)
    (child,) = sweep(rig, 1, 1, after_ok=[parent])
    rig.finish(rig.worker().claim_one())
    assert states(rig, [parent, child]) == "su re"


def test_a_delayed_job_has_its_turn_while_it_is_scheduled(rig: Rig) -> None:
    jobs = sweep(rig, 2, 1, delay_s=60)
    assert states(rig, jobs) == "sc he"


def test_sweeps_and_owners_do_not_wait_for_each_other(rig: Rig) -> None:
    jobs = [rig.submit(sweep=s, parallel=1, owner=o) for s in "ab" for o in ("ann", "bob")]
    free = rig.submit(sweep="a")
    assert states(rig, [*jobs, free]) == "re re re re re"


def test_a_repeated_submit_is_the_same_jobs(rig: Rig) -> None:
    asked = [spec(sweep="s", parallel=1, idempotency_key=key) for key in "abc"]
    jobs = rig.queue.submit(asked)
    rig.finish(rig.worker().claim_one())
    assert rig.queue.submit([*asked, spec(sweep="s", parallel=1)])[:3] == jobs
    assert (states(rig, jobs), rig.count("turn"), rig.count("held")) == ("su re he", 1, 2)
    with pytest.raises(IdempotencyConflict):
        rig.queue.submit([spec(sweep="s", parallel=2, idempotency_key="a")])


@pytest.mark.parametrize("parallel", [0, -1, 10_001, 1.5])
def test_nonsense_is_refused(parallel: float) -> None:
    with pytest.raises(ValidationError, match="parallel"):
        spec(sweep="s", parallel=parallel)
    with pytest.raises(ValidationError, match="set sweep too"):
        spec(parallel=1)


def test_two_ends_at_once_let_two_jobs_go(rig: Rig) -> None:
    jobs = sweep(rig, 5)
    one, two = rig.worker().claim(2)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(one.fence, Reason.SUCCEEDED)])
            late = pool.submit(rig.finish, two)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "su su re re he"
    assert agrees(rig)


@pytest.mark.parametrize("first", ["submit", "end"])
def test_an_end_beside_a_submit_leaves_no_job_waiting(rig: Rig, first: str) -> None:
    jobs = sweep(rig, 1, 1)
    grant = rig.worker().claim_one()
    more = [spec(sweep="s", parallel=1)] * 2
    late: Future[Any]
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            if first == "submit":
                jobs += queue.submit(more)
                late = pool.submit(rig.finish, grant)
            else:
                queue.finish([End(grant.fence, Reason.SUCCEEDED)])
                late = pool.submit(lambda: jobs.extend(rig.queue.submit(more)))
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "su re he"


def test_two_submits_at_once_share_the_cap(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            jobs = queue.submit([spec(sweep="s", parallel=2)] * 2)
            late = pool.submit(sweep, rig, 2)
            rig.wait_until_blocked()
        jobs += late.result(timeout=120)
    assert states(rig, jobs) == "re re he he"


def test_an_end_passes_over_a_job_that_is_being_cancelled(rig: Rig) -> None:
    jobs = sweep(rig, 3, 1)
    grant = rig.worker().claim_one()
    with rig.uncommitted() as queue:
        queue.cancel(jobs[1])
        rig.finish(grant)
        assert states(rig, jobs) == "su he re"
    assert states(rig, jobs) == "su ca re"


def test_a_cancel_of_the_whole_sweep_beside_an_end_leaves_no_job(rig: Rig) -> None:
    jobs = sweep(rig, 4)
    one, _ = rig.worker().claim(2)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(one.fence, Reason.SUCCEEDED)])
            late = pool.submit(cancel, rig.queue, jobs)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "su ru ca ca"
    assert agrees(rig)


def test_an_end_beside_a_submit_that_waits_for_a_held_job_leaves_no_job_waiting(rig: Rig) -> None:
    jobs = sweep(rig, 2, 1)
    grant = rig.worker().claim_one()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            # The submit locks the held job, and so an end passes it over or waits for the submit.
            queue.submit([spec(after_ok=[jobs[1]])])
            late = pool.submit(rig.finish, grant)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "su re"


def test_never_more_than_the_cap_run_and_no_job_is_left_waiting(rig: Rig) -> None:
    cap, ended = 3, Event()
    jobs = sweep(rig, 20, cap, max_failures=0)
    queue, workers = rig.queue, [rig.worker(f"w{n}") for n in range(3)]

    def work(worker: Worker) -> None:
        while not ended.is_set():
            for grant in worker.claim(2):
                first = Reason(REASONS[grant.job_id % 3])
                reason = first if grant.attempt == 1 else Reason.SUCCEEDED
                queue.finish([End(grant.fence, reason)])
                if reason is Reason.EXIT_CODE:
                    with suppress(NotRetryable):
                        queue.retry(grant.job_id)

    def watch(eye: psycopg.Connection[Any], seen: int) -> int:
        while not ended.is_set():
            seen = max(seen, len(eye.execute(OUT).fetchall()))
        return seen

    with psycopg.connect(rig.url, autocommit=True) as eye, ThreadPoolExecutor(4) as pool:
        # The first look is before any work: on a busy machine, all may end before the next.
        watched = pool.submit(watch, eye, len(eye.execute(OUT).fetchall()))
        working = [pool.submit(work, worker) for worker in workers]
        try:
            for _ in range(10):
                jobs += sweep(rig, 3, cap, max_failures=0)
                cancel(queue, jobs[-1:])
            # The jobs that failed are retried.
            eventually(lambda: len(rig.rows(ENDED)) == len(jobs))
        finally:
            ended.set()
        for one in working:
            one.result()
        most = watched.result()
    assert most == cap
    assert (rig.count("turn"), rig.count("held")) == (0, 0)


def test_a_higher_cap_starts_jobs_at_once_and_a_lower_one_lets_running_jobs_end(rig: Rig) -> None:
    jobs = sweep(rig, 6, 1)
    assert capped(rig, 3) == {"held": 3, "ready": 3}
    assert states(rig, jobs) == "re re re he he he"
    assert agrees(rig)
    grants = rig.worker().claim(3)
    assert capped(rig, 2) == {"held": 3, "running": 3}
    for grant, then in zip(grants, ("su ru ru he", "su su ru re", "su su su re re"), strict=True):
        rig.finish(grant)
        assert states(rig, jobs).startswith(then)


def test_a_cap_is_stored_and_told_once(rig: Rig) -> None:
    sweep(rig, 3, 1)
    for _ in range(2):
        assert capped(rig, 2) == {"held": 1, "ready": 2}
    assert rig.rows("SELECT * FROM sweep_cap") == [{"line": "ann/s", "parallel": 2}]
    (event,) = rig.rows("SELECT actor, detail FROM event WHERE action = 'sweep parallel set'")
    told = {"owner": "ann", "sweep": "s", "parallel": 2}
    assert event == {"actor": "user:ann", "detail": told}


def test_jobs_that_are_submitted_or_retried_later_follow_the_cap(rig: Rig) -> None:
    jobs = sweep(rig, 2, 1, max_failures=0)
    capped(rig, 2)
    failed, _ = rig.worker().claim(2)
    rig.finish(failed, Reason.EXIT_CODE)
    jobs += sweep(rig, 1, 9)
    assert states(rig, jobs) == "de ru re"
    rig.queue.retry(jobs[0])
    assert states(rig, jobs) == "he ru re"
    assert capped(rig, 3) == {"ready": 2, "running": 1}


def test_only_a_sweep_whose_jobs_wait_for_turns_has_a_cap(rig: Rig) -> None:
    with pytest.raises(SweepUnknown):
        capped(rig, 2)
    rig.submit(sweep="s")
    rig.submit(sweep="s", parallel=1, owner="bob")
    with pytest.raises(SweepUncapped):
        capped(rig, 2)
    assert rig.count("sweep_cap") == 0


@pytest.mark.parametrize("first", ["cap", "end"])
def test_an_end_beside_a_change_of_the_cap_leaves_no_job_waiting(rig: Rig, first: str) -> None:
    jobs = sweep(rig, 5, 1)
    grant = rig.worker().claim_one()
    late: Future[Any]
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            if first == "cap":
                capped(rig, 3, queue)
                late = pool.submit(rig.finish, grant)
            else:
                queue.finish([End(grant.fence, Reason.SUCCEEDED)])
                late = pool.submit(capped, rig, 3)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "su re re re he"
    assert agrees(rig)


@pytest.mark.parametrize("first", ["cap", "submit"])
def test_a_submit_beside_a_change_of_the_cap_follows_it(rig: Rig, first: str) -> None:
    jobs = sweep(rig, 1, 1)
    late: Future[Any]
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            if first == "cap":
                capped(rig, 2, queue)
                late = pool.submit(lambda: jobs.extend(sweep(rig, 2, 1)))
            else:
                jobs += queue.submit([spec(sweep="s", parallel=1)] * 2)
                late = pool.submit(capped, rig, 2)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "re re he"
    assert agrees(rig)


def test_two_changes_of_a_cap_at_once_leave_the_later_one(rig: Rig) -> None:
    jobs = sweep(rig, 5, 1)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            capped(rig, 2, queue)
            late = pool.submit(capped, rig, 4)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, jobs) == "re re re re he"
    assert rig.row("SELECT parallel FROM sweep_cap") == {"parallel": 4}


def test_the_sweeper_passes_on_turns_that_were_lost(rig: Rig) -> None:
    jobs = sweep(rig, 3, 1)
    rig.rows("ALTER TABLE outcome DISABLE TRIGGER outcome_release")
    rig.finish(rig.worker().claim_one())
    assert states(rig, jobs) == "su he he"
    rig.rows("ALTER TABLE outcome ENABLE TRIGGER outcome_release")
    rig.tick.run()
    assert states(rig, jobs) == "su re he"
    assert agrees(rig)

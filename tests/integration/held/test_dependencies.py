"""Jobs that wait for other jobs: when each kind is released, what fails, and races."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.job import IdempotencyConflict, JobUnknown
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, State
from pydantic import ValidationError
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

KINDS = ("after", "after_ok", "after_any")


def end(rig: Rig, worker: Worker, how: str) -> int:
    """Submit a job and end it; return its id."""
    job = rig.submit(max_failures=0)
    if how == "cancelled":
        rig.queue.cancel(job)
    else:
        rig.finish(worker.claim_one(), Reason(how))
    return job


def children(rig: Rig, parent: int) -> list[int]:
    return [rig.submit(**{kind: [parent]}) for kind in KINDS]


def states(rig: Rig, jobs: list[int]) -> list[str]:
    assert all(len(rig.places(job)) == 1 for job in jobs)
    return [rig.state(job).value for job in jobs]


def edges(rig: Rig, job: int) -> list[tuple[int, bool | None]]:
    query = "SELECT needs_id, met FROM dependency WHERE job_id = %s ORDER BY 1"
    return [(row["needs_id"], row["met"]) for row in rig.rows(query, job)]


@pytest.mark.parametrize(
    ("how", "after_ok"),
    [("succeeded", "ready"), ("exit_code", "cancelled"), ("timeout", "cancelled")],
)
def test_each_kind_is_released_at_its_moment(rig: Rig, how: str, after_ok: str) -> None:
    parent = rig.submit(max_failures=0)
    waiting = children(rig, parent)
    assert states(rig, waiting) == ["held"] * 3
    worker = rig.worker()
    grant = worker.claim_one()
    assert (grant.job_id, worker.claim()) == (parent, [])
    rig.queue.report(grant.fence, Phase.PREPARING)
    assert states(rig, waiting) == ["held"] * 3
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.queue.report(grant.fence, Phase.RUNNING)
    assert states(rig, waiting) == ["ready", "held", "held"]
    rig.finish(grant, Reason(how))
    assert states(rig, waiting) == ["ready", after_ok, "ready"]
    assert rig.actions(waiting[0]) == ["submitted", "released"]


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("succeeded", ["ready", "ready", "ready"]),
        ("timeout", ["ready", "cancelled", "ready"]),
        ("cancelled", ["ready", "cancelled", "ready"]),
    ],
)
def test_an_end_in_the_past_counts_at_once(rig: Rig, how: str, found: list[str]) -> None:
    parent = end(rig, rig.worker(), how)
    assert states(rig, children(rig, parent)) == found


def test_a_job_that_began_once_has_begun_although_it_waits_again(rig: Rig) -> None:
    parent = rig.submit()
    grant = rig.worker().claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    assert states(rig, children(rig, parent)) == ["ready", "held", "held"]
    rig.finish(grant, Reason.PREEMPTED)
    assert rig.state(parent) == State.READY
    assert states(rig, children(rig, parent)) == ["ready", "held", "held"]


def test_a_retry_of_an_attempt_releases_nothing_yet(rig: Rig) -> None:
    parent = rig.submit(max_failures=1, backoff_s=0)
    waiting = children(rig, parent)
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.OOM)
    assert states(rig, waiting) == ["held"] * 3
    rig.tick.run()
    rig.finish(worker.claim_one(), Reason.OOM)
    assert (rig.state(parent), states(rig, waiting)) == (
        State.DEAD, ["ready", "cancelled", "ready"],
    )  # fmt: skip


def test_a_job_waits_for_all_its_dependencies(rig: Rig) -> None:
    parents = rig.submit_many(3)
    child = rig.submit(after_ok=parents[:2], after_any=[parents[2]])
    worker = rig.worker()
    for n in range(3):
        assert rig.state(child) == State.HELD
        rig.finish(worker.claim_one(), Reason.SUCCEEDED if n < 2 else Reason.TIMEOUT)
    assert rig.state(child) == State.READY
    assert worker.claim_one().job_id == child


def test_a_delayed_job_is_scheduled_once_it_need_not_wait_for_others(rig: Rig) -> None:
    parent = rig.submit()
    child = rig.submit(after_ok=[parent], delay_s=60)
    rig.finish(rig.worker().claim_one())
    assert rig.state(child) == State.SCHEDULED
    rig.clock.advance(60)
    rig.tick.run()
    assert rig.state(child) == State.READY


def test_a_failure_ends_the_whole_chain_and_says_why(rig: Rig) -> None:
    worker = rig.worker()
    first = rig.submit(max_failures=0)
    chain = [first]
    for _ in range(30):
        chain.append(rig.submit(after_ok=[chain[-1]]))
    other = rig.submit(priority=-5)
    last = rig.submit(after_ok=[other, chain[-1]])
    aside = rig.submit(after_any=[chain[-1]])
    rig.finish(worker.claim_one(), Reason.TIMEOUT)
    assert states(rig, [*chain[1:], last]) == ["cancelled"] * 31
    assert rig.state(aside) == State.READY
    for parent, child in pairwise(chain):
        said = rig.jobs.job(child)
        verb = "failed" if parent == first else "was cancelled"
        assert (said["reason"], said["detail"]) == ("dependency_failed", f"job {parent} {verb}")
        assert rig.actions(child) == ["submitted", "dependency failed"]
    assert not rig.rows("SELECT FROM dependency WHERE met IS NULL")


def test_a_retry_of_the_other_job_revives_no_dependent(rig: Rig) -> None:
    worker = rig.worker()
    first, second = rig.submit(max_failures=0), rig.submit(priority=-1)
    failed, patient = rig.submit(after_ok=[first]), rig.submit(after_any=[first, second])
    rig.finish(worker.claim_one(), Reason.TIMEOUT)
    rig.queue.retry(first)
    assert (rig.state(failed), rig.state(patient)) == (State.CANCELLED, State.HELD)
    rig.finish(worker.claim_one())
    # Its dependency on the first job was met by that job's first end.
    assert edges(rig, patient) == [(first, True), (second, None)]
    rig.finish(worker.claim_one())
    assert (rig.state(failed), rig.state(patient)) == (State.CANCELLED, State.READY)


def test_a_held_job_can_be_cancelled_and_takes_its_chain_along(rig: Rig) -> None:
    parent = rig.submit()
    child = rig.submit(after_ok=[parent])
    grandchild = rig.submit(after_ok=[child])
    assert rig.queue.cancel(child) == State.CANCELLED
    assert rig.queue.cancel(child) == State.CANCELLED
    assert states(rig, [child, grandchild]) == ["cancelled", "cancelled"]
    assert [rig.jobs.job(job)["reason"] for job in (child, grandchild)] == [
        "cancelled", "dependency_failed",
    ]  # fmt: skip
    assert rig.actions(child) == ["submitted", "cancelled"]
    assert not rig.rows("SELECT FROM dependency WHERE met IS NULL")
    rig.finish(rig.worker().claim_one())
    assert states(rig, [child, grandchild]) == ["cancelled", "cancelled"]


def test_a_lease_that_runs_out_for_the_last_time_releases_too(rig: Rig) -> None:
    parent = rig.submit(max_losses=0)
    waiting = children(rig, parent)
    rig.worker().claim_one()
    rig.expire()
    rig.tick.run()
    assert states(rig, waiting) == ["ready", "cancelled", "ready"]


def test_workers_are_told_of_a_released_job(rig: Rig) -> None:
    parent = rig.submit()
    rig.submit(after_ok=[parent])
    grant = rig.worker().claim_one()
    with rig.listening() as heard:
        rig.finish(grant)
        assert [kind for kind, *_ in (hint.split(":") for hint in heard())] == ["ready"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_job_refuses_the_whole_batch(rig: Rig, kind: str) -> None:
    own, other = rig.submit(), rig.submit(owner="bob")
    for unknown in (other, 4_711):
        with pytest.raises(JobUnknown, match=f"no job {unknown}"):
            rig.queue.submit([spec(), spec(**{kind: [own, unknown]})])
    assert rig.count("job") == 2
    (job,) = rig.queue.submit([spec(**{kind: [own, other]})], any_owner=True)
    assert rig.state(job) == State.HELD


def test_no_job_can_wait_for_itself(rig: Rig) -> None:
    following = rig.submit() + 1
    for jobs in ([spec(after_ok=[following])], [spec(), spec(after_ok=[following + 1])]):
        with pytest.raises(JobUnknown):
            rig.queue.submit(jobs)
    job = rig.submit(idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        rig.submit(idempotency_key="k", after_ok=[job])
    assert rig.count("dependency") == 0


def test_a_repeated_submit_is_the_same_job(rig: Rig) -> None:
    parents = rig.submit_many(2)
    again: dict[str, Any] = {"idempotency_key": "k"}
    job = rig.submit(after_ok=parents, **again)
    assert rig.submit(after_ok=[*reversed(parents), *parents], **again) == job
    with pytest.raises(IdempotencyConflict):
        rig.submit(after_any=parents, **again)
    for _ in parents:
        rig.finish(rig.worker().claim_one())
    assert rig.submit(after_ok=parents, **again) == job
    assert (rig.state(job), rig.count("held")) == (State.READY, 0)


@pytest.mark.parametrize("needs", [[0], ["x"], list(range(1, 102))])
def test_impossible_dependencies_are_refused(needs: list[Any]) -> None:
    with pytest.raises(ValidationError):
        spec(after=needs)


def test_a_job_is_named_once() -> None:
    with pytest.raises(ValidationError, match="each job only once"):
        spec(after=[7], after_ok=[7])


@pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.TIMEOUT])
@pytest.mark.parametrize("first", ["submit", "end"])
def test_a_submit_and_an_end_at_once_leave_no_job_behind(
    rig: Rig, first: str, reason: Reason
) -> None:
    parent = rig.submit(max_failures=0)
    grant = rig.worker().claim_one()
    found: list[int] = []
    late: Future[object]
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            if first == "submit":
                found = queue.submit([spec(after_ok=[parent])])
                late = pool.submit(rig.finish, grant, reason)
            else:
                queue.finish([End(grant.fence, reason)])
                late = pool.submit(lambda: found.append(rig.submit(after_ok=[parent])))
            rig.wait_until_blocked()
        late.result(timeout=120)
    wanted = State.READY if reason is Reason.SUCCEEDED else State.CANCELLED
    assert states(rig, found) == [wanted.value]


def test_a_submit_and_a_start_at_once_leave_no_job_behind(rig: Rig) -> None:
    parent = rig.submit()
    grant = rig.worker().claim_one()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            (child,) = queue.submit([spec(after=[parent])])
            begun = pool.submit(rig.queue.report, grant.fence, Phase.RUNNING)
            rig.wait_until_blocked()
        begun.result(timeout=120)
    assert states(rig, [child]) == ["ready"]


def test_two_ends_at_once_release_their_child_once(rig: Rig) -> None:
    rig.submit_many(2)
    worker = rig.worker()
    one, two = worker.claim(2)
    child = rig.submit(after_ok=[one.job_id, two.job_id])
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(one.fence, Reason.SUCCEEDED)])
            late = pool.submit(rig.finish, two)
            rig.wait_until_blocked()
        late.result(timeout=120)
    assert states(rig, [child]) == ["ready"]
    assert rig.actions(child) == ["submitted", "released"]


def test_the_sweeper_releases_dependencies_that_were_not_settled(rig: Rig) -> None:
    parent = rig.submit()
    waiting = children(rig, parent)
    rig.rows("ALTER TABLE outcome DISABLE TRIGGER outcome_release")
    rig.finish(rig.worker().claim_one())
    assert states(rig, waiting) == ["held"] * 3
    rig.rows("ALTER TABLE outcome ENABLE TRIGGER outcome_release")
    rig.tick.run()
    assert states(rig, waiting) == ["ready"] * 3


@pytest.mark.parametrize("preempted", [False, True])
def test_the_sweeper_releases_those_that_wait_for_a_job_that_began(
    rig: Rig, *, preempted: bool
) -> None:
    parent = rig.submit()
    early, late, both = (
        rig.submit(after=[parent]),
        rig.submit(after_ok=[parent]),
        rig.submit(after=[parent], after_ok=[rig.submit(queue="other")]),
    )
    grant = rig.worker().claim_one()
    rig.rows("ALTER TABLE lease DISABLE TRIGGER lease_release")
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.rows("ALTER TABLE lease ENABLE TRIGGER lease_release")
    if preempted:
        rig.finish(grant, Reason.PREEMPTED)
    assert [rig.tick.release_stragglers() for _ in range(2)] == [2, 0]
    assert states(rig, [early, late, both]) == ["ready", "held", "held"]

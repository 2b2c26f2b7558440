"""A gang that lost a member keeps its other machines for its next run, for a bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.ending import KEPT
from forge_schema.explain import explain
from forge_schema.model.job import JobStatus
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Phase, Reason, State
from forge_schema.model.worker import WorkerInfo
from forge_schema.service.changing import Change
from support.gangs.drafts import drafted, fresh
from support.gangs.elastic import fences, formed, members
from support.gangs.gang_workers import GangWorker

if TYPE_CHECKING:
    from support.queue.rig import Rig

KEPT_S = KEPT["turn"].total_seconds()
ECHO = "RuntimeError: Connection reset by peer"


def team(rig: Rig, count: int = 3) -> tuple[list[GangWorker], int]:
    """Return workers, and the gang that computes on all of them."""
    workers = [fresh(rig, f"g{n}") for n in range(count)]
    for worker in workers:
        assert worker.look() == []
    return workers, formed(rig, workers, nodes=count)


def alive(rig: Rig, *without: GangWorker) -> None:
    """Renew the leases and heartbeats of all workers but some."""
    ids = [worker.id for worker in without]
    rig.rows("UPDATE worker SET last_seen_at = forge_now() WHERE id <> ALL(%s)", ids)
    rig.rows(
        "UPDATE lease SET expires_at = forge_now() + interval '2 minutes'"
        " WHERE worker_id <> ALL(%s) AND over IS NULL",
        ids,
    )


def notices(rig: Rig, job: int, *workers: GangWorker) -> None:
    """Have members end because another one is gone, and look for jobs with the same call."""
    held = {row["worker_id"]: row for row in members(rig, job)}
    for worker in workers:
        row = held[worker.id]
        worker.grants = []
        worker.look([End(Fence(job, row["token"], row["nonce"]), Reason.EXIT_CODE, 1, ECHO)])


def lose(rig: Rig, lost: GangWorker) -> None:
    """Let the lease of a machine expire that is gone."""
    rig.clock.advance(rig.queue.ttl.total_seconds() + 1)
    alive(rig, lost)
    rig.tick.requeue()


def test_the_others_are_kept_from_when_they_notice_until_the_gang_runs_again(rig: Rig) -> None:
    workers, job = team(rig)
    lost, *others = workers
    rig.submit_many(5)
    notices(rig, job, *others)
    # Its lease holds for two more minutes, and nobody else has them.
    assert [worker.grants for worker in others] == [[], []]
    assert drafted(rig) == dict.fromkeys((worker.id for worker in others), job)
    assert "2 workers keep room for it" in explain(rig.database, job).text
    lose(rig, lost)
    assert rig.places(job) == ["ready"]
    shown = JobStatus(**rig.jobs.job(job))
    assert shown.kept == 2
    listed = [WorkerInfo(**row).keeps_for for row in rig.registry.workers()]
    assert listed == [None, job, job]
    assert [worker.look() for worker in others] == [[], []]
    assert "2 workers keep room for it" in explain(rig.database, job).text
    # The missing machine comes back, and the gang goes before what waits for it.
    fresh(rig, "new").look()
    assert len(members(rig, job)) == 3
    assert {row["attempt"] for row in members(rig, job)} == {2}
    rig.tick.draft()
    assert (drafted(rig), rig.count("forming")) == ({}, 0)


def test_the_missing_machine_is_the_next_one_that_becomes_free(rig: Rig) -> None:
    workers, job = team(rig)
    lost, *others = workers
    rig.submit_many(4)
    busy = fresh(rig, "busy")
    assert busy.look()
    notices(rig, job, *others)
    rig.tick.draft()
    # Until it is known that the run is over, only its own machines wait.
    assert busy.id not in drafted(rig)
    lose(rig, lost)
    rig.tick.draft()
    assert drafted(rig)[busy.id] == job
    for worker in others:
        worker.look()
    (grant,) = busy.grants
    busy.look([End(grant.fence, Reason.SUCCEEDED)])
    assert {row["worker_id"] for row in members(rig, job)} == {busy.id, *(w.id for w in others)}


def test_a_notice_to_one_machine_keeps_the_others_although_it_ends_last(rig: Rig) -> None:
    workers, job = team(rig)
    leaving, *others = workers
    fence = fences(rig, job)[0]
    rig.submit_many(3)
    rig.queue.runs.ask(fence)
    notices(rig, job, *others)
    rig.queue.finish([End(fence, Reason.PREEMPTED)])
    assert rig.places(job) == ["ready"]
    assert drafted(rig) == dict.fromkeys((worker.id for worker in others), job)
    assert [worker.grants for worker in others] == [[], []]
    assert leaving.look() != []


def test_a_machine_is_kept_while_the_output_of_a_run_is_stored_that_lost_another(rig: Rig) -> None:
    workers, job = team(rig)
    rig.submit_many(3)
    rig.queue.finish([End(fences(rig, job)[0], Reason.WORKER_LOST)])
    for fence, worker in zip(fences(rig, job)[1:], workers[1:], strict=True):
        rig.queue.report(fence, Phase.FINISHING)
        # Its room is free before its end is stored.
        assert worker.look() == []
    assert drafted(rig) == dict.fromkeys((worker.id for worker in workers[1:]), job)


def test_they_are_let_go_when_the_time_is_over_and_the_gang_rests(rig: Rig) -> None:
    workers, job = team(rig)
    lost, *others = workers
    notices(rig, job, *others)
    lose(rig, lost)
    singles = rig.submit_many(2)
    rig.clock.advance(KEPT_S - 1)
    alive(rig, lost)
    rig.tick.draft()
    assert others[0].look() == []
    rig.clock.advance(1)
    # By themselves, and then the sweeper notes it; other gangs have their turn.
    assert [grant.job_id for grant in others[0].look()] == singles[:1]
    rig.tick.draft()
    assert drafted(rig) == {}
    assert others[1].look() != []
    assert rig.places(job) == ["ready"]


@pytest.mark.parametrize("how", ["cancelled", "cancelled while it is lost", "changed", "died"])
def test_they_are_let_go_at_once_when_nothing_waits_for_them(rig: Rig, how: str) -> None:
    workers, job = team(rig)
    lost, *others = workers
    if how == "died":
        rig.rows("UPDATE lease SET losses = 5")
    notices(rig, job, *others)
    if how != "cancelled while it is lost":
        lose(rig, lost)
    if how.startswith("cancelled"):
        rig.queue.cancel(job)
    elif how == "changed":
        Change(rig.database, "ann", job, {"resources": {"cpus": 0.5}}).make()
    assert drafted(rig) == {}
    rig.submit_many(2)
    assert all(worker.look() for worker in others)


def test_a_gang_whose_own_program_failed_keeps_nothing(rig: Rig) -> None:
    workers, job = team(rig)
    others = workers[1:]
    fence = fences(rig, job)[0]
    rig.queue.finish([End(fence, Reason.EXIT_CODE, 1, "ValueError")])
    notices(rig, job, *others)
    assert rig.state(job) is State.SCHEDULED
    assert (drafted(rig), rig.count("forming")) == ({}, 0)
    rig.submit_many(3)
    assert all(worker.look() for worker in workers)


def test_a_gang_that_is_preempted_as_a_whole_keeps_nothing(rig: Rig) -> None:
    workers, job = team(rig)
    rig.queue.preempt(job)
    for fence in fences(rig, job):
        rig.queue.finish([End(fence, Reason.PREEMPTED)])
    assert drafted(rig) == {}
    rig.submit_many(3, priority=1)
    assert all(worker.look() for worker in workers)


def test_a_keeping_machine_that_dies_too_is_replaced(rig: Rig) -> None:
    workers, job = team(rig)
    lost, dying, other = workers
    notices(rig, job, dying, other)
    lose(rig, lost)
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", dying.id)
    rig.tick.draft()
    assert drafted(rig) == {other.id: job}
    assert rig.places(job) == ["ready"]
    for name in ("new", "newer"):
        fresh(rig, name).look()
    other.look()
    assert len(members(rig, job)) == 3


def test_two_gangs_that_each_lost_a_machine_do_not_wait_for_each_other(rig: Rig) -> None:
    first, one = team(rig, 2)
    second, two = team_of(rig, "h")
    for (lost, kept), job in ((first, one), (second, two)):
        notices(rig, job, kept)
        lose(rig, lost)
        alive(rig, first[0], second[0])
    assert drafted(rig) == {first[1].id: one, second[1].id: two}
    spare = fresh(rig, "spare")
    spare.look()
    for _, kept in (first, second):
        kept.look()
    assert [rig.places(job) for job in (one, two)] == [["lease"] * 2, ["ready"]]
    rig.clock.advance(KEPT_S)
    alive(rig, first[0], second[0])
    rig.tick.draft()
    rig.submit_many(1)
    assert second[1].look() != []


def team_of(rig: Rig, name: str) -> tuple[list[GangWorker], int]:
    """Return two more workers, and a gang that computes on them."""
    workers = [fresh(rig, f"{name}{n}") for n in range(2)]
    for worker in workers:
        assert worker.look() == []
    return workers, formed(rig, workers)


def test_a_worker_that_read_the_lanes_before_it_was_drafted_is_given_nothing_else(
    rig: Rig,
) -> None:
    worker = fresh(rig, "late")
    worker.gateway._lanes._refresh_s = 3600  # type: ignore[attr-defined]  # it reads them once
    rig.submit_many(2)
    assert worker.look() != []
    job = rig.submit(nodes=2)
    rig.rows(
        "INSERT INTO draft (worker_id, job_id, lane_id, nice, until)"
        " SELECT %s, id, lane_id, nice, forge_now() + interval '1 minute' FROM job WHERE id = %s",
        worker.id,
        job,
    )
    grants = worker.gateway.finish_and_claim([], worker.free, 1)[1]
    assert grants == []

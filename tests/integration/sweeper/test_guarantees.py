"""Guaranteed GPUs are lent while they are not needed, and given back when they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.admin import OwnerSettings, TeamChanges
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, Standing
from forge_schema.read.reports import Reports
from support.client.command import command
from support.gangs.drafts import drafted, fresh, late, pass_time

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker


def gpus(count: int) -> list[dict[str, Any]]:
    return [{"name": "NVIDIA H100", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(count)]


def guarantee(rig: Rig, owner: str, count: int | None) -> None:
    rig.admin.limit_owner(owner, OwnerSettings(guaranteed_gpus=count))


def running(rig: Rig, worker: Worker, count: int = 1, **changes: Any) -> list[Grant]:  # noqa: ANN401  fields of all types
    """Submit jobs of a GPU, and have a worker run them."""
    rig.submit_many(count, **{"gpus": 1, "owner": "ben", **changes})
    grants = worker.claim(count)
    assert len(grants) == count
    for grant in grants:
        rig.queue.report(grant.fence, Phase.RUNNING)
    taken = sum(grant.spec["resources"]["gpus"] for grant in grants)
    worker.free = replace(worker.free, gpus=worker.free.gpus - taken)
    return grants


def left(rig: Rig, seconds: float = 61) -> list[int]:
    """Sweep, and return the jobs that were asked to leave so far."""
    rig.clock.advance(seconds)
    rig.tick.displace()
    rows = rig.rows("SELECT DISTINCT job_id FROM lease WHERE asked = 'preempted' ORDER BY job_id")
    return [row["job_id"] for row in rows]


def gone(rig: Rig, worker: Worker, *grants: Grant) -> None:
    rig.queue.finish([End(grant.fence, Reason.PREEMPTED) for grant in grants])
    back = sum(grant.spec["resources"]["gpus"] for grant in grants)
    worker.free = replace(worker.free, gpus=worker.free.gpus + back)


@pytest.fixture
def worker(rig: Rig) -> Worker:
    worker = rig.worker(cpus=100, gpus=gpus(4))
    worker.free = replace(worker.free, gpus_in_all=4)
    return worker


def test_what_was_lent_is_given_back_to_the_owner_it_is_guaranteed_to(
    rig: Rig, worker: Worker
) -> None:
    guarantee(rig, "ann", 2)
    grants = running(rig, worker, 4, priority=5)
    rig.clock.advance(600)
    assert rig.records.add_checkpoint(grants[2].fence, CheckpointRecord(0, "key", 1, 1))
    waiting = rig.submit(gpus=1)
    assert left(rig) == [grants[2].job_id]
    assert worker.renew(*grants).standings[grants[2].fence] is Standing.PREEMPTED
    assert f"job {grants[2].job_id} makes room for it" in explain(rig.database, waiting).text
    text = f"for job {waiting}, whose GPUs are guaranteed to owner ann"
    assert f"it leaves {text}" in explain(rig.database, grants[2].job_id).text
    gone(rig, worker, grants[2])
    # It is more urgent and was first, and yet it does not take the room back.
    assert left(rig, 6) == []
    assert [grant.job_id for grant in worker.claim(5)] == [waiting]
    assert f"it left {text}" in explain(rig.database, grants[2].job_id).text
    row = rig.row("SELECT failures, losses FROM ready WHERE job_id = %s", grants[2].job_id)
    assert row == {"failures": 0, "losses": 0}
    (lost,) = Reports(rig.database).rows("lost_time")
    assert (lost["displaced_by"], lost["reason"]) == (waiting, "preempted")
    # Nobody has to leave for the one that left: it is guaranteed nothing.
    rig.tick.draft()
    assert left(rig) == []


def test_no_more_is_given_back_than_is_guaranteed(rig: Rig, worker: Worker) -> None:
    guarantee(rig, "ann", 2)
    running(rig, worker, 3)
    running(rig, worker, owner="ann")
    rig.submit_many(3, gpus=1)
    rig.submit(gpus=1, cpus=2)
    # Those of other shapes too: the room that is kept counts.
    assert len(left(rig)) == 1
    assert len(left(rig)) == 1


@pytest.mark.parametrize(
    "job",
    [
        {"owner": "eve"},
        {"gpus": 3},
        {"gpus": 0, "cpus": 200},
        {"queue": "full"},
        {"owner": "dan"},
    ],
)
def test_only_what_is_guaranteed_and_not_held_back_has_others_leave(
    rig: Rig, worker: Worker, job: dict[str, Any]
) -> None:
    guarantee(rig, "ann", 2)
    guarantee(rig, "dan", 1)
    rig.admin.set_queue("full", {"max_gpus": 0})
    running(rig, worker, 3)
    running(rig, worker, owner="dan")
    rig.submit(**{"gpus": 1, **job})
    assert left(rig) == []


def test_nobody_is_taken_below_a_guarantee_of_their_own(rig: Rig, worker: Worker) -> None:
    guarantee(rig, "ann", 4)
    rig.admin.set_team("nlp", TeamChanges(join=["ben", "eve"], guaranteed_gpus=3))
    (first,) = running(rig, worker)
    (young,) = running(rig, worker, owner="eve", gpus=3)
    rig.clock.advance(60)
    assert rig.records.add_checkpoint(young.fence, CheckpointRecord(0, "key", 1, 1))
    waiting = rig.submit(gpus=1)
    # The younger one has all that is guaranteed to the team.
    assert left(rig) == [first.job_id]
    gone(rig, worker, first)
    assert worker.claim_one().job_id == waiting
    rig.tick.draft()
    rig.submit(gpus=1)
    assert left(rig) == []


def test_a_higher_priority_takes_nothing_that_is_guaranteed_to_others(
    rig: Rig, worker: Worker
) -> None:
    rig.admin.set_queue("default", {"preemption": "higher-priority"})
    guarantee(rig, "ben", 4)
    grants = running(rig, worker, 4)
    rig.submit(gpus=1, priority=9)
    assert left(rig) == []
    rig.submit(gpus=1, priority=9, owner="ben")
    assert left(rig) == [grants[0].job_id]


def test_jobs_are_left_alone_as_their_own_queue_says(rig: Rig, worker: Worker) -> None:
    guarantee(rig, "ann", 4)
    rig.admin.set_queue("slow", {"preempts_after_s": 3600})
    rig.admin.set_queue("default", {"most_preempted": 1})
    running(rig, worker, 2, queue="slow")
    running(rig, worker, 2)
    rig.submit(gpus=2)
    assert left(rig) == []
    assert len(left(rig, 3600)) == 2


def test_the_guarantee_of_a_queue_counts_for_all_who_use_it(rig: Rig, worker: Worker) -> None:
    rig.admin.set_queue("night", {"guaranteed_gpus": 1})
    grants = running(rig, worker, 4)
    rig.submit(gpus=1, owner="eve", queue="night")
    rig.submit(gpus=1, owner="ben", queue="night")
    assert left(rig) == [grants[0].job_id]


def test_a_gang_takes_its_guarantee_back_on_all_its_machines(rig: Rig) -> None:
    guarantee(rig, "ann", 2)
    rig.submit_many(3, gpus=1, owner="ben", priority=5)
    workers = [fresh(rig, f"w{n}", cpus=9, gpus=gpus(1)) for n in range(3)]
    for each in workers:
        each.free = replace(each.free, gpus_in_all=1)
        assert each.look()
    rig.clock.advance(60)
    waiting = late(rig, gpus=1)
    pass_time(rig, 0)
    rig.tick.displace()
    asked = rig.rows("SELECT DISTINCT worker_id FROM lease WHERE asked = 'preempted'")
    assert len(asked) == 2
    leaving = [each for each in workers if {"worker_id": each.id} in asked]
    assert {drafted(rig)[each.id] for each in leaving} == {waiting}
    rig.queue.finish([End(each.grants.pop().fence, Reason.PREEMPTED) for each in leaving])
    # They are more urgent, and kept out all the same.
    assert leaving[0].look() == []
    leaving[1].look()
    assert rig.places(waiting) == ["lease"] * 2


def test_two_with_the_same_guarantee_do_not_take_from_each_other_in_turn(
    rig: Rig, worker: Worker
) -> None:
    guarantee(rig, "ann", 2)
    guarantee(rig, "ben", 2)
    grants = running(rig, worker, 4)
    # The first ones may not, or find no victims; that is no matter for those behind them.
    rig.submit(gpus=3)
    rig.submit(gpus=1, labels={"zone": "eu"})
    rig.submit_many(3, gpus=1)
    for _ in range(2):
        rig.tick.draft()
        (leaves, *_) = left(rig)
        gone(rig, worker, *[grant for grant in grants if grant.job_id == leaves])
        assert worker.claim_one().owner == "ann"
        worker.free = replace(worker.free, gpus=0)
    rig.tick.draft()
    assert left(rig) == []


def test_an_admin_guarantees_gpus_and_both_sides_are_told_what_happened(
    rig: Rig, worker: Worker, tmp_path: Path
) -> None:
    forge = command(
        tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=(tmp_path / "store").as_uri()
    )
    forge("team", "join", "nlp", "ann")
    said = forge("queue", "limit", "--team", "nlp", "--guaranteed-gpus", "4").stderr
    assert "any number of GPUs at once, 4 GPUs guaranteed" in said
    assert "4 GPUs guaranteed" in forge("queue", "limit", "--team", "nlp", "--jobs", "9").stderr
    refused = forge("queue", "limit", "night", "--guaranteed-gpus", "few")
    assert "--guaranteed-gpus 'few' is not a limit" in refused.stderr
    (lent,) = running(rig, worker, gpus=4)
    small = ("--memory", "1MiB", "--disk", "1MiB")
    job = forge("submit", "--gpu", "2", *small, ".", "--", "true").stdout.strip()
    assert left(rig) == [lent.job_id]
    assert f"job {lent.job_id} makes room for it" in forge("explain", job).stdout
    gone(rig, worker, lent)
    assert str(worker.claim_one().job_id) == job
    text = f"for job {job}, whose GPUs are guaranteed to team nlp"
    assert f"it left {text}" in forge("explain", str(lent.job_id)).stdout
    shown = forge("show", str(lent.job_id)).stdout
    assert f"Displaced by job {job}, whose GPUs are guaranteed to team nlp" in shown
    assert job in forge("report", "show", "lost_time", "--by", "displaced_by").stdout
    assert "Displaced" in forge("events", "--job", str(lent.job_id)).stdout

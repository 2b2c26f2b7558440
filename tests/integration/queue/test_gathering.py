"""Members of a run tell each other where they are, and see how far the others have come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from forge_schema.model.lease import Fence, Gathering, Member
from forge_schema.model.states import Phase, Reason, Standing
from support.at_once import at_once
from support.gangs.runs import formed, running

if TYPE_CHECKING:
    from pydantic import JsonValue
    from support.queue.rig import Rig

HOME: dict[str, JsonValue] = {"address": "10.0.0.5", "port": 40123, "gpus": 8}


def test_members_see_each_other_by_rank(rig: Rig) -> None:
    run = running(rig)
    alone = rig.queue.gather(run.fences[1], 1, HOME)
    assert alone == Gathering(
        Standing.OK,
        [Member(0, "gpu-0", 0), Member(1, "gpu-1", 1, HOME), Member(2, "gpu-2", 0)],
    )
    rig.queue.gather(run.fences[0], 1, {"address": "10.0.0.4", "master_port": 29500})
    told = rig.queue.gather(run.fences[2], 1, {"address": "10.0.0.6"})
    assert [member.step for member in told.members] == [1, 1, 1]
    addresses = [member.details["address"] for member in told.members]
    assert addresses == ["10.0.0.4", "10.0.0.5", "10.0.0.6"]


def test_a_step_is_never_taken_back_and_the_newest_details_count(rig: Rig) -> None:
    run = running(rig, nodes=2)
    rig.queue.gather(run.fences[0], 2, HOME)
    told = rig.queue.gather(run.fences[0], 1, {"address": "10.0.0.9"})
    assert told.members[0] == Member(0, "gpu-0", 2, {"address": "10.0.0.9"})
    assert rig.queue.gather(run.fences[1], 1, {}).members[0] == told.members[0]


def test_a_repeat_writes_nothing(rig: Rig) -> None:
    run = running(rig, nodes=2)
    rig.queue.gather(run.fences[0], 1, HOME)
    versions = "SELECT xmin::text FROM lease WHERE rank = 0"
    before = rig.row(versions)
    again = rig.queue.gather(run.fences[0], 1, HOME)
    assert (rig.row(versions), again.members[0].step) == (before, 1)


def test_of_all_members_at_once_the_last_sees_everybody(rig: Rig) -> None:
    run = running(rig, nodes=6)
    at_once(*(partial(rig.queue.gather, fence, 1, HOME) for fence in run.fences))
    told = [rig.queue.gather(fence, 1, HOME) for fence in run.fences]
    assert {member.step for one in told for member in one.members} == {1}


def test_a_member_that_is_over_is_seen_and_its_neighbours_are_told_to_stop(rig: Rig) -> None:
    run = running(rig)
    run.end(1, Reason.START_FAILED, detail="no image")
    told = rig.queue.gather(run.fences[0], 1, HOME)
    assert told.standing is Standing.ENDED
    assert [member.over for member in told.members] == [False, True, False]
    assert rig.queue.gather(run.fences[1], 1, HOME) == Gathering(Standing.LOST)


def test_a_wrong_fence_and_an_earlier_run_are_lost(rig: Rig) -> None:
    run = running(rig)
    wrong = Fence(run.job_id, run.fences[0].token, uuid4())
    assert rig.queue.gather(wrong, 1, HOME) == Gathering(Standing.LOST)
    for rank in range(3):
        run.end(rank, Reason.PREEMPTED)
    again = formed(rig, run.job_id, run.workers)
    assert rig.queue.gather(run.fences[0], 1, HOME) == Gathering(Standing.LOST)
    assert [member.step for member in rig.queue.gather(again.fences[0], 1, {}).members] == [1, 0, 0]


def test_a_request_to_end_is_heard_while_gathering(rig: Rig) -> None:
    run = running(rig)
    rig.queue.cancel(run.job_id)
    assert rig.queue.gather(run.fences[2], 1, HOME).standing is Standing.CANCELLED


def test_a_running_job_lists_its_members(rig: Rig) -> None:
    run = running(rig)
    rig.queue.report(run.fences[2], Phase.RUNNING)
    run.end(1, Reason.EXIT_CODE, exit_code=3)
    rest = {"step": 0, "reason": None, "exit_code": None}
    failed = {"reason": "exit_code", "exit_code": 3}
    assert rig.jobs.job(run.job_id)["members"] == [
        {"rank": 0, "worker": "gpu-0", "phase": "claimed", **rest},
        {"rank": 1, "worker": "gpu-1", "phase": "claimed", **rest} | failed,
        {"rank": 2, "worker": "gpu-2", "phase": "running", **rest},
    ]
    for rank in (0, 2):
        run.end(rank, Reason.RUN_ENDED)
    assert rig.jobs.job(run.job_id)["members"] == []
    single = rig.submit()
    rig.worker().claim_one()
    assert rig.jobs.job(single)["members"] == []

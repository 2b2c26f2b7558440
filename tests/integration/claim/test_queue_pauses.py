"""Pauses: no job of a paused queue starts, and running jobs continue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forge_schema.model.states import State
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig


def test_a_paused_queue_grants_nothing_until_it_is_resumed(rig: Rig) -> None:
    job_id = rig.submit()
    other = rig.submit(queue="other")
    worker = rig.worker()
    rig.admin.set_queue("default", {"paused": True})
    assert [grant.fence.job_id for grant in worker.claim(count=9)] == [other]
    assert (worker.claim(), rig.state(job_id)) == ([], State.READY)
    rig.admin.set_queue("default", {"paused": False})
    assert worker.claim_one().fence.job_id == job_id


def test_a_pause_holds_for_lanes_made_afterwards_and_for_running_jobs_changes_nothing(
    rig: Rig,
) -> None:
    rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    rig.admin.set_queue("default", {"paused": True})
    rig.submit(cpus=2, owner="bob")
    assert worker.claim() == []
    assert worker.renew(grant).standings == {grant.fence: "ok"}
    assert rig.finish(grant).state == State.SUCCEEDED


def test_a_pause_is_felt_by_a_worker_that_remembers_its_lanes(rig: Rig) -> None:
    rig.submit_many(2)
    worker = rig.worker()
    worker.lanes._refresh_s = 3600
    worker.claim_one()
    rig.admin.set_queue("default", {"paused": True})
    assert worker.claim() == []


def test_a_lane_that_is_being_made_does_not_escape_a_pause(rig: Rig) -> None:
    rig.submit()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.submit([spec(cpus=2)])
            paused = pool.submit(rig.admin.set_queue, "default", {"paused": True})
            rig.wait_until_blocked()
        paused.result(timeout=120)
    assert rig.worker().claim(count=9) == []

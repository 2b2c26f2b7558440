"""A job that waits is changed in place, as a whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.errors import ForgeError, JobInvalid
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller
from forge_schema.service.changing import Change, NotChangeable
from forge_schema.service.service import Service
from support.at_once import at_once

if TYPE_CHECKING:
    from support.queue.rig import Rig


def change(rig: Rig, job_id: int, **fields: Any) -> None:  # noqa: ANN401  fields of all types
    Change(rig.database, "user:ann", job_id, fields).make()


def changes(rig: Rig, job_id: int) -> list[Any]:
    return [row["detail"] for row in rig.jobs.events(job_id) if row["action"] == "changed"]


def test_a_changed_job_keeps_its_place_and_the_trail_has_both_values(rig: Rig) -> None:
    first, second, third = rig.submit_many(3)
    change(rig, second, priority=5, resources={"memory_mb": 7}, timeout_s=60)
    change(rig, second, priority=0)
    assert changes(rig, second) == [
        {
            "priority": {"from": 0, "to": 5},
            "memory_mb": {"from": 1, "to": 7},
            "timeout_s": {"from": None, "to": 60},
        },
        {"priority": {"from": 5, "to": 0}},
    ]
    worker = rig.worker()
    grants = [worker.claim_one() for _ in range(3)]
    assert [grant.job_id for grant in grants] == [first, second, third]
    assert (grants[1].timeout_s, grants[1].spec["resources"]["memory_mb"]) == (60, 7)


def test_a_repeat_changes_nothing_and_says_the_same(rig: Rig) -> None:
    service = Service(Caller("ann", Role.SUBMITTER, "user:ann"), lambda: rig.database, None)  # type: ignore[arg-type] # no verb here needs a store
    job = rig.submit()
    answers = [service.change(job, {"queue": "b", "labels": {"zone": "eu"}}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert (answers[0].queue, len(changes(rig, job))) == ("b", 1)
    rig.worker(labels={"zone": "eu"}).claim_one()
    assert service.change(job, {"queue": "b"}).state == "running"


@pytest.mark.parametrize("where", ["ready", "scheduled", "held"])
def test_a_job_is_changed_wherever_it_waits(rig: Rig, where: str) -> None:
    first = rig.submit()
    more: dict[str, dict[str, Any]] = {
        "ready": {},
        "scheduled": {"delay_s": 60},
        "held": {"after_ok": [first]},
    }
    job = rig.submit(**more[where])
    change(rig, job, priority=9, queue="other", keep_checkpoints=2)
    assert rig.places(job) == [where]
    worker = rig.worker()
    if where != "ready":
        rig.finish(worker.claim_one())
    rig.clock.advance(seconds=61)
    rig.tick.run()
    grant = worker.claim_one()
    assert (grant.job_id, grant.priority, grant.spec["keep_checkpoints"]) == (job, 9, 2)
    assert rig.jobs.job(job)["queue"] == "other"


def test_a_job_that_runs_or_has_ended_is_refused(rig: Rig) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    with pytest.raises(NotChangeable, match="is running"):
        change(rig, job, priority=1)
    rig.finish(grant)
    with pytest.raises(NotChangeable, match="has succeeded"):
        change(rig, job, priority=1)
    assert changes(rig, job) == []


@pytest.mark.parametrize(
    "fields", [{"command": ["x"]}, {"priority": 5000}, {"resources": {"gpus": -1}}, {"nosuch": 1}]
)
def test_a_bad_change_changes_nothing(rig: Rig, fields: dict[str, Any]) -> None:
    job = rig.submit()
    with pytest.raises(JobInvalid):
        change(rig, job, queue="b", **fields)
    assert (rig.jobs.job(job)["queue"], changes(rig, job)) == ("default", [])


def test_a_change_that_may_spend_too_much_waits_for_approval(rig: Rig) -> None:
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=2.0))
    job = rig.submit(gpus=1, timeout_s=3600)
    change(rig, job, timeout_s=3 * 3600)
    assert rig.places(job) == ["held"]
    change(rig, job, timeout_s=3600)
    assert rig.places(job) == ["ready"]
    change(rig, job, timeout_s=None)
    rig.queue._acts.approve([job])
    change(rig, job, priority=3)
    assert rig.places(job) == ["ready"]


def test_one_that_has_run_before_is_not_held_for_an_approval(rig: Rig) -> None:
    job = rig.submit(timeout_s=3600)
    rig.queue.release(rig.worker().claim_one().fence)
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=2.0))
    with pytest.raises(NotChangeable, match="approval"):
        change(rig, job, resources={"gpus": 8})
    assert rig.places(job) == ["ready"]


def test_changes_and_claims_at_the_same_moment_are_whole(rig: Rig) -> None:
    """Each job is claimed with its old request and refused, or with all of its new one."""
    jobs = rig.submit_many(20)
    workers = [rig.worker(f"w{n}") for n in range(2)]
    refused: list[int] = []

    def change_each() -> None:
        for job in jobs[::-1]:
            try:
                change(rig, job, timeout_s=60, resources={"memory_mb": 7})
            except ForgeError:
                refused.append(job)

    granted: list[Any] = []
    at_once(
        change_each,
        *(lambda w=w: granted.extend(g for _ in jobs for g in w.claim()) for w in workers),
    )
    seen = {g.job_id: (g.timeout_s, g.spec["resources"]["memory_mb"]) for g in granted}
    assert set(seen) == set(jobs)
    assert seen == {job: (None, 1) if job in refused else (60, 7) for job in jobs}


def test_two_changes_of_one_job_at_the_same_moment_are_both_made(rig: Rig) -> None:
    job = rig.submit()

    def five_times(name: str, least: float) -> None:
        for more in range(5):
            change(rig, job, **{name: least + more})

    at_once(lambda: five_times("timeout_s", 60), lambda: five_times("grace_s", 5))
    row = rig.jobs.job(job)
    assert (row["timeout_s"], row["spec"]["grace_s"], len(changes(rig, job))) == (64, 9.0, 10)

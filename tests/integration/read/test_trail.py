"""Pages of the audit trail: submits, which are in the jobs' rows, among the other acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.admin import OwnerSettings
from forge_schema.read import audit
from forge_schema.read.audit import NEWEST, Audit, AuditFilter, AuditPlace
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig


def paged(rig: Rig, **wanted: Any) -> list[tuple[str, int | None]]:  # noqa: ANN401  filters of all types
    """Read the whole trail, two actions a page."""
    found: list[tuple[str, int | None]] = []
    place: AuditPlace | None = NEWEST
    while place is not None:
        page = audit.page(rig.database, AuditFilter(before=place, **wanted), count=2)
        found += [(act["action"], act["job_id"]) for act in page.acts]
        place = page.before and AuditPlace.read(str(page.before))
    return found


@pytest.mark.parametrize("reach", [3, 5000])
def test_submits_stand_among_the_other_acts_each_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, reach: int
) -> None:
    monkeypatch.setattr(audit, "REACH", reach)
    first = rig.submit()
    rig.clock.advance(1)
    rig.queue.cancel(first)
    rig.clock.advance(1)
    some = [rig.submit() for _ in range(3)]
    rig.clock.advance(1)
    rig.queue.cancel(some[0])
    rig.clock.advance(1)
    last = rig.submit()
    expected = [
        ("submitted", last), ("cancelled", some[0]), *(("submitted", job) for job in some[::-1]),
        ("cancelled", first), ("submitted", first),
    ]  # fmt: skip
    assert paged(rig) == expected
    assert paged(rig, action="SUBMIT") == [act for act in expected if act[0] == "submitted"]
    assert paged(rig, job_id=first) == expected[-2:]
    assert paged(rig, actor="nobody") == paged(rig, worker_id=1) == []
    assert [e["action"] for e in Audit(rig.database).events(job_id=last)] == ["submitted"]


def test_acts_whose_times_and_ids_disagree_are_each_on_a_page(rig: Rig) -> None:
    audit = Audit(rig.database)
    late = [rig.submit(), rig.submit()]
    audit.note("user:ann", "late", {})
    rig.clock.advance(-60)
    early = [rig.submit(), rig.submit()]
    audit.note("user:ann", "early", {})
    told = paged(rig)
    assert sorted(told, key=str) == sorted(
        [("early", None), ("late", None), *(("submitted", job) for job in late + early)], key=str
    )


def test_who_ended_an_attempt_is_told(rig: Rig) -> None:
    lost, done = rig.worker(), rig.worker()
    for worker in (lost, done):
        rig.submit()
        grant = worker.claim_one()
    rig.finish(grant)
    rig.clock.advance(600)
    rig.tick.requeue()
    rig.clock.advance(600)
    rig.tick.requeue()
    ends = [act["actor"] for act in Audit(rig.database).events(action="ended")]
    assert ends == [f"worker:{done.id}", "sweeper"]


def test_a_submit_comes_before_what_it_led_to_at_that_moment(rig: Rig) -> None:
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=1))
    jobs = rig.queue.submit([spec(gpus=1), spec(gpus=1)])
    told = [(act["job_id"], act["action"]) for act in Audit(rig.database).events(actor="user:ann")]
    assert told == [(job, act) for job in jobs for act in ("submitted", "asked for approval")]

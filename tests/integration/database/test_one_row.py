"""A success is one row: the outcome, which is its attempt too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.lease import End
from forge_schema.model.states import Reason

if TYPE_CHECKING:
    from support.queue.rig import Rig


@pytest.mark.parametrize("claiming", [True, False])
def test_a_success_is_one_row(rig: Rig, claiming: bool) -> None:  # noqa: FBT001 - a parameter
    rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    if claiming:
        end = End(grant.fence, Reason.SUCCEEDED)
        rig.queue.finish_and_claim([end], worker.lanes, worker.free)
    else:
        rig.finish(grant)
    assert [rig.count(table) for table in ("outcome", "attempt_row", "attempt")] == [1, 0, 1]
    (told,) = rig.jobs.attempts(grant.fence.job_id)
    assert (told["worker"], told["attempt"], told["rank"]) == ("w", 1, 0)
    assert told["accepted"]


def test_the_last_of_several_attempts_is_the_outcome(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.PREEMPTED)
    rig.finish(worker.claim_one())
    assert [rig.count(table) for table in ("outcome", "attempt_row")] == [1, 1]
    told = [(row["attempt"], row["reason"], row["accepted"]) for row in rig.jobs.attempts(job_id)]
    assert told == [(1, "preempted", False), (2, "succeeded", True)]


def test_a_report_on_interruptions_does_not_look_at_outcomes(rig: Rig) -> None:
    plan = rig.rows("EXPLAIN SELECT * FROM attempt WHERE reason = 'preempted'")
    assert "outcome" not in str(plan)
    assert "attempt_row" in str(plan)


def test_a_success_and_a_failure_that_end_together_both_release_what_waits(rig: Rig) -> None:
    needed = rig.submit_many(2)
    waiting = [rig.submit(after_any=[job_id]) for job_id in needed]
    one, other = rig.worker().claim(2)
    ends = [End(one.fence, Reason.SUCCEEDED), End(other.fence, Reason.IMAGE_MISSING)]
    assert all(ended.accepted for ended in rig.queue.finish(ends))
    assert [rig.places(job_id) for job_id in waiting] == [["ready"], ["ready"]]

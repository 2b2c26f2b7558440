"""A checkpoint that may be torn is not the end: later attempts begin with older ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.attempt_records import CheckpointRecord, MetricRecord
from forge_schema.model.lease import fence_params
from forge_schema.model.states import Budget, Phase, Reason, State
from forge_schema.queue.thinning import PENDING
from support.gangs.runs import formed, running

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

KILLED: dict[str, Any] = {"reason": Reason.EXIT_CODE, "exit_code": 137}
FAILED: dict[str, Any] = {"reason": Reason.EXIT_CODE, "exit_code": 1, "detail": "ValueError: EOF"}


def save(
    rig: Rig, grant: Grant, *numbers: int, killed: bool = False, step: int | None = None
) -> None:
    for number in numbers:
        key = f"jobs/{grant.fence.job_id}/{grant.attempt}/{number}"
        made = CheckpointRecord(number, key, 1, 10, step=step, killed=killed)
        assert rig.records.add_checkpoint(grant.fence, made)


def begins(rig: Rig, worker: Worker) -> tuple[Grant, str | None]:
    """Claim the job's next attempt, as a worker that restores; return what it begins with."""
    rig.clock.advance(100_000)
    rig.tick.promote()
    grant = worker.claim_one()
    rows = rig.records.restorable(grant.fence.job_id)
    found = [row for row in rows if row["passed_over"] is None]
    for row in found[:1]:
        if row["job_id"] == grant.fence.job_id:
            assert rig.records.add_beginning(grant.fence, row["attempt"], row["number"])
    rig.queue.report(grant.fence, Phase.RUNNING)
    return grant, f"{found[0]['attempt']}.{found[0]['number']}" if found else None


def trained(rig: Rig, *, kept: int = 3, end: dict[str, Any] = KILLED, **changes: int) -> Worker:
    """Let a job store checkpoints 1.0, 1.1, … and end."""
    rig.submit(**changes)
    worker = rig.worker()
    grant = worker.claim_one()
    save(rig, grant, *range(kept))
    rig.finish(grant, **end)
    return worker


def failures(rig: Rig) -> int:
    spent = {one.budget: one.used for one in explain(rig.database, 1).budgets}
    return spent[Budget.FAILURES]


def test_an_attempt_that_fails_early_is_followed_by_one_with_an_older_checkpoint(rig: Rig) -> None:
    worker = trained(rig)
    for attempt, begun in ((2, "1.2"), (3, "1.1")):
        grant, found = begins(rig, worker)
        assert (grant.attempt, found) == (attempt, begun)
        # It stores the torn file again, as it found it, and as it changed it.
        save(rig, grant, 0, 1)
        rig.finish(grant, **FAILED)
        # Only the first attempt is charged.
        assert failures(rig) == 1
    grant, found = begins(rig, worker)
    assert found == "1.0"
    rows = {f"{r['attempt']}.{r['number']}": r["passed_over"] for r in rig.jobs.checkpoints(1)}
    assert rows == {"3.1": 3, "3.0": 3, "2.1": 2, "2.0": 2, "1.2": 2, "1.1": 3, "1.0": None}
    rig.finish(grant, Reason.SUCCEEDED)


LOST: dict[str, Any] = {"reason": Reason.WORKER_LOST}
CLEAN: dict[str, Any] = {"reason": Reason.EXIT_CODE, "exit_code": 3}
PREEMPTED: dict[str, Any] = {"reason": Reason.PREEMPTED}


@pytest.mark.parametrize(
    ("end", "flagged", "step", "second", "ran_s", "reported", "saves", "begun"),
    [
        (KILLED, False, None, FAILED, 1, False, 1, "1.1"),
        (LOST, False, None, FAILED, 1, False, 1, "1.1"),
        ({"reason": Reason.OOM}, False, None, FAILED, 1, False, 1, "1.1"),
        # Stopped for a preemption: the worker tells whether a signal ended the program.
        (PREEMPTED, True, None, FAILED, 1, False, 1, "1.1"),
        (PREEMPTED, False, None, FAILED, 1, False, 0, "1.2"),
        # So does the exit code, where nothing was stored after the stop. A launcher may hide it.
        ({**PREEMPTED, "exit_code": 143}, False, None, FAILED, 1, False, 1, "1.1"),
        ({**PREEMPTED, "exit_code": 1}, False, None, FAILED, 1, False, 1, "1.1"),
        ({**PREEMPTED, "exit_code": 0}, False, None, FAILED, 1, False, 0, "1.2"),
        (CLEAN, False, None, FAILED, 1, False, 0, "1.2"),
        # A step that the program committed is whole.
        (KILLED, False, 7, FAILED, 1, False, 0, "1.2"),
        # A broken file may crash the reader, but nobody is killed by one.
        (KILLED, False, None, {**FAILED, "exit_code": 139}, 1, False, 0, "1.1"),
        (KILLED, False, None, {"reason": Reason.OOM}, 1, False, 0, "1.1"),
        (KILLED, False, None, KILLED, 1, False, 0, "1.2"),
        (KILLED, False, None, {**FAILED, "exit_code": 143}, 1, False, 0, "1.2"),
        (KILLED, False, None, PREEMPTED, 1, False, 0, "1.2"),
        # What it reports or stores in the first minute is no proof alone; both are.
        (KILLED, False, None, FAILED, 50, False, 3, "1.1"),
        (KILLED, False, None, FAILED, 50, True, 0, "1.1"),
        (KILLED, False, None, FAILED, 50, True, 2, "2.1"),
        (KILLED, False, None, FAILED, 300, False, 1, "1.1"),
        (KILLED, False, None, FAILED, 300, True, 1, "2.0"),
        (KILLED, False, None, FAILED, 300, False, 2, "2.1"),
        (KILLED, False, None, FAILED, 700, False, 1, "2.0"),
    ],
)
def test_who_is_to_blame(
    rig: Rig,
    *,
    end: dict[str, Any],
    flagged: bool,
    step: int | None,
    second: dict[str, Any],
    ran_s: int,
    reported: bool,
    saves: int,
    begun: str,
) -> None:
    rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    save(rig, grant, 0, 1, step=step)
    save(rig, grant, 2, killed=flagged, step=step)
    rig.finish(grant, **end)
    grant, found = begins(rig, worker)
    assert found == "1.2"
    if reported:
        assert rig.records.add_metrics(grant.fence, [MetricRecord(0, 1.0, {"loss": 1.0})])
    save(rig, grant, *range(saves))
    rig.clock.advance(ran_s)
    rig.finish(grant, **second)
    assert begins(rig, worker)[1] == begun


def test_after_five_steps_it_is_not_the_checkpoint(rig: Rig) -> None:
    worker = trained(rig, kept=9)
    seen = []
    for _ in range(6):
        grant, found = begins(rig, worker)
        seen.append(found)
        save(rig, grant, 0)
        rig.finish(grant, **FAILED)
    assert seen == ["1.8", "1.7", "1.6", "1.5", "1.4", "1.3"]
    assert failures(rig) == 2
    for left in (State.SCHEDULED, State.DEAD):
        grant, found = begins(rig, worker)
        assert found == "1.8"
        rig.finish(grant, **FAILED)
        assert rig.state(1) == left


def test_without_an_older_one_the_last_attempt_begins_anew(rig: Rig) -> None:
    worker = trained(rig, kept=1, max_failures=2)
    for found in ("1.0", "1.0", None):
        grant, begun = begins(rig, worker)
        assert begun == found
        if begun:
            save(rig, grant, 0)
            rig.finish(grant, **FAILED)
    assert rig.state(1) == State.RUNNING
    rig.finish(grant, **FAILED)
    assert rig.state(1) == State.DEAD


def test_a_job_without_retries_is_not_failed_by_its_checkpoint(rig: Rig) -> None:
    worker = trained(rig, end=LOST, max_failures=0)
    grant, _ = begins(rig, worker)
    rig.finish(grant, **FAILED)
    grant, begun = begins(rig, worker)
    assert begun == "1.1"
    rig.finish(grant, **FAILED)
    assert begins(rig, worker)[1] == "1.0"
    assert failures(rig) == 0


def test_new_checkpoints_are_thinned_around_one_that_may_be_sound(rig: Rig) -> None:
    worker = trained(rig)
    grant, _ = begins(rig, worker)
    save(rig, grant, 0, 1, 2)
    held: dict[str, Any] = fence_params(grant.fence)
    rig.database.rows("thin_checkpoints", keep=1, pending=PENDING, **held)
    rig.finish(grant, **FAILED)
    assert begins(rig, worker)[1] == "1.1"


def test_all_ranks_of_a_run_begin_with_the_older_one(rig: Rig) -> None:
    first = running(rig, 2)
    for fence in first.fences:
        rig.queue.gather(fence, 1, {})
    for number in range(3):
        for rank, fence in enumerate(first.fences):
            key, follows = f"jobs/1/{rank}/{number}", number if rank else None
            # Only one of them was killed; the other was asked to stop, and did.
            made = CheckpointRecord(
                number, key, 1, 10, follows=follows, killed=number == 2 and rank == 1
            )
            assert rig.records.add_checkpoint(fence, made)
    first.end(1, Reason.PREEMPTED)
    first.end(0, Reason.RUN_ENDED)
    for begun in (2, 1, 0):
        rig.clock.advance(10_000)
        rig.tick.promote()
        run = formed(rig, 1, first.workers)
        run.start()
        assert rig.records.restorable(1)[0]["number"] == begun
        for fence in run.fences:
            assert rig.records.add_beginning(fence, 1, begun)
        run.end(1, **FAILED)
        run.end(0, Reason.RUN_ENDED)
    assert failures(rig) == 1


def test_what_runs_well_again_is_not_held_against_older_ones(rig: Rig) -> None:
    worker = trained(rig)
    grant, _ = begins(rig, worker)
    rig.finish(grant, **FAILED)
    grant, begun = begins(rig, worker)
    assert begun == "1.1"
    save(rig, grant, 0, 1)
    rig.clock.advance(5000)
    rig.finish(grant, **KILLED)
    grant, begun = begins(rig, worker)
    assert begun == "3.1"
    rig.finish(grant, **FAILED)
    assert begins(rig, worker)[1] == "3.0"

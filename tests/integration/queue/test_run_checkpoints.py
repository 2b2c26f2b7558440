"""Which rows of the ranks of a run make one checkpoint, and when it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.attempt_records import ALL, CheckpointRecord
from forge_schema.model.spec import CheckpointSource
from forge_schema.model.states import Reason
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.read.jobs import Jobs
from support.gangs.runs import Run, running

if TYPE_CHECKING:
    from support.queue.rig import Rig


def run_of(rig: Rig, nodes: int = 3, **changes: Any) -> Run:  # noqa: ANN401  fields of a job
    """Form a run whose members store their checkpoints."""
    run = running(rig, nodes, **changes)
    for fence in run.fences:
        rig.queue.gather(fence, 1, {})
    return run


def save(run: Run, rank: int, number: int, **changes: Any) -> None:  # noqa: ANN401  as above
    """Store a checkpoint of one rank."""
    key = f"jobs/{run.job_id}/{rank}/{number}"
    made = CheckpointRecord(number, key, 1, 10 * (rank + 1), **changes)
    assert run.rig.records.add_checkpoint(run.fences[rank], made)


def newest(run: Run) -> tuple[int, dict[int, int]] | None:
    """Return the number of the newest complete checkpoint, and those of its companions by rank."""
    rows = run.rig.records.restorable(run.job_id)
    row = run.rig.records.latest_checkpoint(run.job_id)
    assert (row and row["number"]) == (rows[0]["number"] if rows else None)
    if not rows:
        return None
    found = [one["key"].split("/")[-2:] for one in rows[0]["companions"]]
    return rows[0]["number"], {int(rank): int(number) for rank, number in found}


def test_a_checkpoint_counts_once_every_rank_has_stored_its_part(rig: Rig) -> None:
    run = run_of(rig)
    save(run, 0, 0)
    save(run, 1, 0, follows=0)
    assert newest(run) is None
    save(run, 2, 0, follows=0)
    assert newest(run) == (0, {1: 0, 2: 0})
    save(run, 0, 1)
    save(run, 2, 1, follows=1)
    assert newest(run) == (0, {1: 0, 2: 0})
    save(run, 1, 1, follows=1)
    assert newest(run) == (1, {1: 1, 2: 1})


def test_the_first_part_after_rank_0_belongs_to_it(rig: Rig) -> None:
    run = run_of(rig, 2)
    for number in range(4):
        save(run, 0, number)
    save(run, 1, 0, follows=0)
    # Its second one was stored, and the answer was lost.
    save(run, 1, 1, follows=2)
    save(run, 1, 2, follows=2)
    assert newest(run) == (2, {1: 1})
    rows = rig.records.restorable(run.job_id)
    assert [row["companions"][0]["key"].split("/")[-1] for row in rows] == ["1", "1", "0"]
    # After the end of its program, nothing can follow.
    save(run, 1, 3, follows=ALL)
    save(run, 0, 4)
    assert newest(run) == (4, {1: 3})


def test_parts_of_the_same_step_belong_together_whenever_they_were_stored(rig: Rig) -> None:
    run = run_of(rig, 2)
    save(run, 1, 0, step=100)
    save(run, 1, 1, step=200)
    save(run, 0, 0, step=200)
    assert newest(run) == (0, {1: 1})
    save(run, 0, 1, step=300)
    # It follows, but is of another step.
    save(run, 1, 2, follows=1, step=250)
    assert newest(run) == (0, {1: 1})
    save(run, 1, 3, follows=0, step=300)
    save(run, 1, 4, follows=0, step=300)
    assert newest(run) == (1, {1: 4})


def test_only_rank_0s_row_needs_nothing_to_follow(rig: Rig) -> None:
    run = run_of(rig, 2)
    save(run, 0, 0, follows=7)
    # It is of a step, and rank 0 had none when it was taken.
    save(run, 1, 0, step=1)
    rows = rig.rows("SELECT rank, nodes, follows, step FROM checkpoint ORDER BY rank")
    assert [tuple(row.values()) for row in rows] == [(0, 2, None, None), (1, 2, -1, 1)]


def test_a_rank_learns_rank_0s_newest_and_its_own(rig: Rig) -> None:
    run = run_of(rig, 2)
    none = dict.fromkeys(("master_number", "master_step", "number", "key", "follows", "step"))
    assert rig.records.newest_checkpoints(run.fences[1]) == {**none, "packs": True}
    save(run, 0, 0)
    save(run, 0, 1)
    save(run, 1, 0, follows=0, step=5)
    assert rig.records.newest_checkpoints(run.fences[1]) == {
        "master_number": 1,
        "master_step": None,
        "number": 0,
        "key": f"jobs/{run.job_id}/1/0",
        "follows": 0,
        "step": 5,
        "packs": True,
    }
    # Rank 0 may be over, and this rank still stores its last one.
    run.end(0)
    found = rig.records.newest_checkpoints(run.fences[1])
    assert found is not None
    assert found["master_number"] == 1
    assert rig.records.newest_checkpoints(run.fences[0]) is None


def test_what_is_half_stored_does_not_count_as_saved_work(rig: Rig) -> None:
    run = run_of(rig, 2)
    rig.clock.advance(10)
    save(run, 0, 0)
    save(run, 1, 0, follows=0)
    at = rig.row("SELECT forge_now() AS now")["now"]
    rig.clock.advance(10)
    save(run, 0, 1)
    run.end(0, Reason.PREEMPTED)
    run.end(1, Reason.RUN_ENDED)
    rows = rig.rows("SELECT checkpoint_at FROM attempt WHERE job_id = %s", run.job_id)
    assert [row["checkpoint_at"] for row in rows] == [at, at]


def test_a_job_starts_only_from_a_complete_checkpoint_which_counts_as_one(rig: Rig) -> None:
    run = run_of(rig, 2)
    asked = CheckpointSource(job_id=run.job_id)
    save(run, 0, 0, step=7)
    with pytest.raises(CheckpointUnknown, match="no complete checkpoint"):
        rig.submit(from_checkpoint=asked)
    assert rig.jobs.checkpoints(run.job_id) == []
    save(run, 1, 0, step=7)
    child = rig.submit(from_checkpoint=asked)
    save(run, 0, 1, step=8)
    half = CheckpointSource(job_id=run.job_id, attempt=1, number=1)
    with pytest.raises(CheckpointUnknown, match=r"no checkpoint 1\.1"):
        rig.submit(from_checkpoint=half)
    (row,) = rig.jobs.checkpoints(run.job_id)
    assert (row["number"], row["step"], row["files"], row["bytes"]) == (0, 7, 2, 30)
    assert row["next"]
    (found,) = rig.records.restorable(child)
    key = f"jobs/{run.job_id}/1/0"
    assert (found["number"], found["companions"]) == (0, [{"key": key, "rank": 1}])


def test_a_running_job_says_how_old_its_newest_whole_checkpoint_is(rig: Rig) -> None:
    run = run_of(rig, 2)
    save(run, 0, 0)
    for told in (None, 40):
        if told:
            save(run, 1, 0, follows=0)
            rig.clock.advance(told)
        found = explain(rig.database, run.job_id)
        assert found.run is not None
        assert (found.run.saved_s is None) == (told is None)
        assert ("last checkpoint 40 s ago" in found.text) == bool(told)
        assert (Jobs(rig.database).job(run.job_id)["saved_s"] is None) == (told is None)

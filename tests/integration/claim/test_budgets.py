"""Budgets of a month: what was used counts exactly once, and a spent one holds back new jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.admin import OwnerSettings, TeamChanges
from forge_schema.model.lease import Usage
from forge_schema.model.states import Reason, State
from psycopg.types.json import Jsonb
from support.queue.rig import spec

if TYPE_CHECKING:
    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

GPUS = [{"name": "NVIDIA H100", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(8)]
HOUR_S = 3600.0
BUDGET_EVENTS = "SELECT action, detail FROM event WHERE action LIKE 'budget%%' ORDER BY at, action"


def limit(rig: Rig, **settings: Any) -> None:  # noqa: ANN401  settings of all types
    rig.admin.limit_owner("ann", OwnerSettings(**settings))


def used(rig: Rig, owner: str = "ann") -> tuple[float, float]:
    """Count, and return the GPU-hours and the cost."""
    rig.admin.count_spending()
    (row,) = [row for row in rig.admin.owners() if row["owner"] == owner]
    return round(row["used_gpu_hours"], 6), round(row["used_cost"], 6)


def machine(rig: Rig, name: str = "w") -> Worker:
    return rig.worker(name, gpus=GPUS, price_per_hour=10)


def end(rig: Rig, grant: Grant, hours: float, gpus: int) -> None:
    """End a job as its worker would that measured it."""
    rig.finish(grant, usage=Usage(gpu_seconds=hours * HOUR_S * gpus, cost=10 * hours))


def run(rig: Rig, worker: Worker, hours: float, **job: Any) -> int:  # noqa: ANN401  as above
    """Run a job for so long, and end it."""
    job_id = rig.submit(**job)
    grant = worker.claim_one()
    rig.clock.advance(hours * HOUR_S)
    end(rig, grant, hours, job.get("gpus", 0))
    return job_id


def test_what_ended_and_what_runs_counts_once_however_often_it_is_counted(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=1000, cost_per_month=1000)
    worker = machine(rig)
    run(rig, worker, 2, gpus=4)
    run(rig, worker, 1)
    assert used(rig) == used(rig) == (8, 30)
    rig.submit(gpus=2)
    grant = worker.claim_one()
    for hour in (1, 2, 3):
        rig.clock.advance(HOUR_S)
        assert used(rig) == (8 + 2 * hour, 30 + 10 * hour)
    end(rig, grant, 3, 2)
    assert used(rig) == (14, 60)
    rig.clock.advance(HOUR_S)
    assert used(rig) == used(rig) == (14, 60)


def test_old_jobs_that_are_removed_stay_counted(rig: Rig) -> None:
    limit(rig, cost_per_month=1000)
    run(rig, machine(rig), 2, gpus=4)
    rig.clock.advance(48 * HOUR_S)
    assert used(rig) == (8, 20)
    removed = rig.database.row("remove_jobs", again=True, after=0, days=1, count=9, actor="sweeper")
    assert removed is not None
    assert (removed["removed"], rig.count("attempt")) == (1, 0)
    assert used(rig) == (8, 20)


def test_a_spent_budget_holds_new_jobs_until_the_month_ends(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=8)
    worker = machine(rig)
    running, waiting, other = rig.submit(gpus=4), rig.submit(gpus=1), rig.submit(owner="bob")
    first, *_ = worker.claim(count=1)
    rig.clock.advance(2 * HOUR_S)
    assert rig.admin.count_spending() == []
    assert [grant.fence.job_id for grant in worker.claim(count=9)] == [other]
    late = rig.submit(cpus=3, gpus=2)
    assert worker.claim(count=9) == []
    assert rig.finish(first).state == State.SUCCEEDED, "what runs goes on"
    (limited,) = explain(rig.database, waiting).limits
    assert limited.text == "the budget of ann is spent for this month: 8.0 of 8 GPU-hours"
    assert limited.until == datetime(2031, 2, 1, tzinfo=UTC)
    rig.clock.set(datetime(2031, 2, 1, tzinfo=UTC) + timedelta(seconds=1))
    assert used(rig) == (0, 0)
    assert {grant.fence.job_id for grant in worker.claim(count=9)} == {waiting, late}
    events = [(row["action"], row["detail"]["gpu_hours"]) for row in rig.rows(BUDGET_EVENTS)]
    assert events == [("budget spent", 8), ("budget renewed", 0)]
    assert running


@pytest.mark.parametrize("settings", [{"gpu_hours_per_month": 9}, {"gpu_hours_per_month": None}])
def test_a_larger_budget_counts_at_once(rig: Rig, settings: dict[str, float | None]) -> None:
    limit(rig, gpu_hours_per_month=8)
    worker = machine(rig)
    run(rig, worker, 2, gpus=4)
    rig.admin.count_spending()
    waiting = rig.submit(gpus=1)
    assert worker.claim() == []
    limit(rig, weight=2)
    assert worker.claim() == [], "other settings leave the budget as it is"
    limit(rig, **settings)
    assert worker.claim_one().fence.job_id == waiting


def test_a_budget_changes_while_a_lane_is_made(rig: Rig) -> None:
    limit(rig, cost_per_month=20)
    run(rig, machine(rig), 2)
    rig.admin.count_spending()
    shape = spec(cpus=3).shape()
    lane = {**shape, "labels": Jsonb(shape["labels"]), "queue": "default", "owner": "ann"}
    with ThreadPoolExecutor(2) as pool:
        with rig.database.transaction() as connection:
            connection.execute("SELECT FROM lane FOR NO KEY UPDATE")
            limited = pool.submit(limit, rig, cost_per_month=30)
            rig.wait_until_blocked()
            # Not as a submission makes it, which would try again after a deadlock.
            made = pool.submit(rig.database.rows, "ensure_lane", **lane)
            rig.wait_until_blocked(2)
        limited.result(timeout=120)
        assert len(made.result(timeout=120)) == 1
    assert rig.rows("SELECT paused FROM lane") == [{"paused": False}] * 2


def test_a_smaller_budget_counts_at_once(rig: Rig) -> None:
    worker = machine(rig)
    run(rig, worker, 2, gpus=4)
    rig.submit()
    limit(rig, cost_per_month=20)
    assert worker.claim() == []


def test_of_a_job_that_crosses_the_months_end_each_month_counts_its_part(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=1000, cost_per_month=1000)
    worker = machine(rig)
    rig.clock.set(datetime(2031, 1, 31, 23, tzinfo=UTC))
    rig.submit(gpus=4)
    grant = worker.claim_one()
    rig.clock.set(datetime(2031, 2, 1, 2, tzinfo=UTC))
    assert used(rig) == (8, 20)
    end(rig, grant, 3, 4)
    assert used(rig) == (8, 20)


def test_jobs_of_an_owner_who_wants_that_are_preempted_and_wait(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=8, when_spent="preempt")
    worker = machine(rig)
    running = rig.submit(gpus=4)
    grant = worker.claim_one()
    rig.clock.advance(2 * HOUR_S)
    rig.tick.hold_to_budgets()
    rig.tick.hold_to_budgets()
    assert rig.actions(running).count("asked to preempt") == 1
    assert "it leaves since the budget of ann is spent" in explain(rig.database, running).text
    assert rig.finish(grant, Reason.PREEMPTED).state == State.READY
    assert worker.claim() == []


def test_a_budget_may_only_be_told(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=8, when_spent="warn")
    worker = machine(rig)
    run(rig, worker, 2, gpus=4)
    rig.admin.count_spending()
    assert [row["action"] for row in rig.rows(BUDGET_EVENTS)] == ["budget spent"]
    waiting = rig.submit()
    assert worker.claim_one().fence.job_id == waiting


def test_a_lane_of_a_program_that_knows_no_budgets_is_paused_within_a_minute(rig: Rig) -> None:
    limit(rig, gpu_hours_per_month=0)
    rig.submit()
    rig.rows("UPDATE lane SET paused = false")
    rig.admin.count_spending()
    assert machine(rig).claim() == []


def test_a_team_spends_what_its_owners_do(rig: Rig) -> None:
    rig.admin.set_team("nlp", TeamChanges(join=["ann", "ben"], gpu_hours_per_month=10))
    worker = machine(rig)
    run(rig, worker, 1, owner="ann", gpus=4)
    run(rig, worker, 1, owner="ben", gpus=4)
    rig.admin.count_spending()
    (team,) = rig.admin.teams()
    assert (team["used_gpu_hours"], team["spent_at"]) == (8, None)
    run(rig, worker, 1, owner="ann", gpus=4)
    rig.admin.count_spending()
    waiting = rig.submit(owner="ben", gpus=1)
    assert worker.claim() == []
    (limit_,) = explain(rig.database, waiting).limits
    assert limit_.code == "team_budget"
    assert limit_.text == "the budget of the team nlp is spent for this month"
    assert [row["detail"]["team"] for row in rig.rows(BUDGET_EVENTS)] == ["nlp"]
    # Whose jobs they are, their usage goes with.
    rig.admin.set_team("nlp", TeamChanges(leave=["ben"]))
    assert worker.claim_one().fence.job_id == waiting
    assert rig.admin.teams()[0]["used_gpu_hours"] == 8


def test_an_owner_of_a_spent_team_stays_under_the_own_budget(rig: Rig) -> None:
    rig.admin.set_team("nlp", TeamChanges(join=["ann"], gpu_hours_per_month=1))
    limit(rig, gpu_hours_per_month=2)
    worker = machine(rig)
    run(rig, worker, 1, owner="ann", gpus=4)
    rig.admin.count_spending()
    waiting = rig.submit(owner="ann", gpus=1)
    codes = [one.code for one in explain(rig.database, waiting).limits]
    assert codes == ["team_budget", "budget"]
    rig.admin.set_team("nlp", TeamChanges(gpu_hours_per_month=None))
    assert worker.claim() == []
    limit(rig, gpu_hours_per_month=None)
    assert worker.claim_one().fence.job_id == waiting

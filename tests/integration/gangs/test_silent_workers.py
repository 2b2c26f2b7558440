"""Workers that died: no gang is formed with them, and one that was costs its job nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, Standing, State, WorkerStatus
from support.gangs.gang_workers import MEMBERS, asleep
from support.gangs.runs import budgets

if TYPE_CHECKING:
    from support.queue.rig import Rig


def test_a_gang_whose_worker_died_comes_back_at_once_and_for_free(rig: Rig) -> None:
    alive, *dead, spare = asleep(rig, 4)
    rig.rows("DELETE FROM idle WHERE worker_id = %s", spare.id)
    job = rig.submit(nodes=3, max_losses=0)
    (grant,) = alive.look()
    rig.clock.advance(19)
    assert rig.tick.end_overrun() == 0
    rig.clock.advance(2)
    assert rig.tick.end_overrun() == 2
    renewed = alive.gateway.renew([grant.fence], WorkerStatus.BUSY)
    assert renewed.standings == {grant.fence: Standing.ENDED}
    assert alive.gateway.finish([End(grant.fence, Reason.RUN_ENDED)])[0].state is State.READY
    assert budgets(rig, job) == (0, 0, 0)
    ends = {row["worker"]: (row["reason"], row["detail"]) for row in rig.jobs.attempts(job)}
    assert ends["g0"] == ("run_ended", None)
    assert ends["g1"] == ends["g2"] == ("run_ended", "its worker did not fetch its lease")
    assert dead[0].look() == []


def test_a_member_that_only_prepares_for_long_is_left_alone(rig: Rig) -> None:
    workers = asleep(rig, 2)
    rig.submit(nodes=2)
    for worker in workers:
        worker.look()
    rig.clock.advance(60)
    assert rig.tick.end_overrun() == 0


@pytest.mark.parametrize(
    ("period_s", "silent_s", "members"),
    [(None, 49, 2), (None, 51, 0), (5, 12, 2), (5, 13, 0), (300, 450, 2)],
)
def test_only_workers_with_a_fresh_sign_of_life_are_chosen(
    rig: Rig, period_s: float | None, silent_s: int, members: int
) -> None:
    first, second = asleep(rig, 2)
    condition = {} if period_s is None else {"heartbeat_s": period_s}
    second.gateway.renew([], WorkerStatus.IDLE, condition)
    rig.clock.advance(silent_s)
    first.gateway.renew([], WorkerStatus.IDLE)
    job = rig.submit(nodes=2)
    assert len(rig.rows(MEMBERS)) == members
    if not members:
        (told,) = (one for one in explain(rig.database, job).workers if one.worker == "g1")
        assert told.chance is Chance.OFFLINE
        assert told.text == f"is silent: last heard from {silent_s} s ago"
        second.gateway.renew([], WorkerStatus.IDLE, condition)
        rig.tick.draft()
        assert len(rig.rows(MEMBERS)) == 2


def test_a_nonsensical_heartbeat_keeps_no_gang_from_forming(rig: Rig) -> None:
    for worker, period in zip(asleep(rig, 3), ("soon", 1e300, -1), strict=True):
        worker.gateway.renew([], WorkerStatus.IDLE, {"heartbeat_s": period})
    rig.submit(nodes=3)
    assert len(rig.rows(MEMBERS)) == 3


def test_drafts_pass_a_silent_worker_by(rig: Rig) -> None:
    silent, *others = asleep(rig, 3)
    rig.clock.advance(51)
    for worker in others:
        worker.gateway.renew([], WorkerStatus.IDLE)
    rig.rows("DELETE FROM idle")
    job = rig.submit(nodes=2)
    query = (
        "SELECT forge_draftable(shape_id, job.id, 2) AS ids"
        " FROM job JOIN lane ON lane.id = lane_id WHERE job.id = %s"
    )
    assert sorted(rig.rows(query, job)[0]["ids"]) == sorted(worker.id for worker in others)
    assert silent.id not in rig.rows(query, job)[0]["ids"]

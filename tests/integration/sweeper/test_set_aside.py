"""Rows that no tick can move are set aside, and everything else continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.states import Phase, State
from forge_schema.sweeper.sweeper import Sweeper

if TYPE_CHECKING:
    from support.queue.rig import Rig

ENDED = """
    INSERT INTO outcome (job_id, attempt, finished_at, state, reason)
    VALUES (%s, 1, forge_now(), 'cancelled', 'cancelled')
"""
READY = """
    INSERT INTO ready (lane_id, nice, job_id, ready_at)
    SELECT lane_id, nice, job_id, forge_now() FROM scheduled WHERE job_id = %s
"""


def aside(rig: Rig) -> list[tuple[str, int]]:
    return [
        (row["place"], row["job_id"]) for row in rig.rows("SELECT * FROM set_aside ORDER BY id")
    ]


def test_a_lease_whose_job_has_ended_holds_up_no_other(rig: Rig) -> None:
    bad, *good = rig.submit_many(4, max_losses=0)
    late = rig.submit(timeout_s=10)
    worker = rig.worker()
    grants = {grant.fence.job_id: grant for grant in worker.claim(5)}
    rig.queue.report(grants[late].fence, Phase.RUNNING)
    due = rig.submit(delay_s=5)
    rig.rows(ENDED, bad)
    rig.expire()
    worker.renew(grants[late])
    swept = rig.tick.run()
    assert (swept.requeued, swept.promoted, swept.overdue) == (3, 1, 1)
    assert [rig.state(job) for job in good] == [State.DEAD] * 3
    assert (rig.places(bad), rig.places(due)) == (["outcome"], ["ready"])
    kept = rig.row("SELECT * FROM set_aside")
    assert (kept["place"], kept["content"]["token"]) == ("lease", grants[bad].fence.token)
    assert "outcome_pkey" in kept["error"]
    (event,) = [event for event in rig.jobs.events(bad) if event["action"] == "set aside"]
    assert event["detail"]["error"] == kept["error"]
    assert not rig.finish(grants[bad]).accepted
    rig.tick.run()
    assert len(aside(rig)) == 1


def test_a_lease_held_past_its_time_limit_whose_job_has_ended_is_set_aside(rig: Rig) -> None:
    bad, good = rig.submit_many(2, timeout_s=10)
    worker = rig.worker()
    grants = worker.claim(2)
    for grant in grants:
        rig.queue.report(grant.fence, Phase.RUNNING)
    rig.rows(ENDED, bad)
    rig.clock.advance(11)
    rig.tick.run()
    rig.clock.advance(331)
    worker.renew(*grants)
    assert rig.tick.run().overrun == 1
    assert (aside(rig), rig.state(good)) == ([("lease", bad)], State.FAILED)


def test_a_scheduled_job_that_is_ready_holds_up_no_other(rig: Rig) -> None:
    one, bad, two = rig.submit_many(3, delay_s=5)
    rig.rows(READY, bad)
    rig.clock.advance(5)
    # A tick that sets it aside and loses the answer does nothing more when repeated.
    rig.database.lose("set_aside_scheduled")
    assert rig.tick.run().promoted == 2
    assert [rig.places(job) for job in (one, bad, two)] == [["ready"]] * 3
    assert aside(rig) == [("scheduled", bad)]
    assert rig.actions(bad).count("set aside") == 1


def test_a_step_that_fails_keeps_no_other_from_running_and_health_turns_red(rig: Rig) -> None:
    now = [0.0]
    sweeper = Sweeper(rig.tick, period_s=10, clock=lambda: now[0])
    rig.submit(delay_s=5)
    rig.clock.advance(5)
    rig.rows("DROP TABLE sweeper, request_nonce")
    now[0] = 30
    sweeper.tick()
    assert (rig.count("ready"), sweeper.healthy) == (1, True)
    now[0] = 31
    sweeper.tick()
    assert not sweeper.healthy

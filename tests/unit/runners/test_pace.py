"""How often a shim looks at its job's memory."""

from __future__ import annotations

from forge_worker.runners.process.shim import ALERT_S, CALM_S, QUIET_S, Pace

LIMIT = 1000


def test_a_job_without_a_memory_group_is_checked_often_above_half_of_its_limit() -> None:
    pace = Pace(LIMIT, held=False)
    assert [pace.next(used) for used in (10, 10, 10, 501, 501)] == [CALM_S] * 3 + [ALERT_S] * 2


def test_a_job_that_the_kernel_holds_is_looked_at_seldom_while_its_memory_stays_the_same() -> None:
    pace = Pace(LIMIT, held=True)
    pauses = [pace.hasten(), *(pace.next(900) for _ in range(9))]
    assert pauses[:4] == [ALERT_S, CALM_S, 2 * CALM_S, 4 * CALM_S]
    assert pauses[-1] == QUIET_S
    assert [pace.next(910), pace.next(980)] == [QUIET_S, CALM_S]
    assert [pace.hasten(), pace.next(980)] == [ALERT_S, 2 * ALERT_S]

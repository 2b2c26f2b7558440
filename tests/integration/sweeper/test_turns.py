"""Of several sweepers one works, and another one takes over when the first one stops working."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.sweeper import Sweeper
from forge_schema.sweeper.tick import Tick

if TYPE_CHECKING:
    from support.queue.rig import Rig

PERIOD_S = 10.0


@pytest.fixture
def two(rig: Rig) -> list[Sweeper]:
    """Make two sweepers of one queue, neither of which ticks by itself."""
    queues = [Queue(rig.database, actor=name) for name in ("one", "two")]
    return [Sweeper(Tick(queue), period_s=PERIOD_S) for queue in queues]


def statements(rig: Rig, sweeper: Sweeper, *, after_s: float) -> list[str]:
    """Return what a sweeper runs when it ticks after some time."""
    rig.clock.advance(after_s)
    rig.database.ran.clear()
    sweeper.tick()
    return rig.database.names()


def test_one_works_and_the_other_only_watches(rig: Rig, two: list[Sweeper]) -> None:
    one, other = two
    for _ in range(3):
        assert "expired" in statements(rig, one, after_s=PERIOD_S / 2)
        assert statements(rig, other, after_s=PERIOD_S / 2) == ["tick_due"]
    assert other.healthy


def test_only_the_one_that_works_wakes_between_its_ticks(rig: Rig, two: list[Sweeper]) -> None:
    ran = []
    for sweeper in two:
        sweeper.tick()
        rig.database.names()
        sweeper.wake_again()
        ran.append(rig.database.names())
    assert ran == [["draft", "wake_again"], []]
    statements(rig, two[1], after_s=PERIOD_S)
    rig.clock.advance(PERIOD_S / 2)
    two[0].tick()
    rig.database.names()
    two[0].wake_again()
    assert rig.database.names() == []


def test_a_sweeper_that_is_gone_is_replaced_within_two_periods(
    rig: Rig, two: list[Sweeper]
) -> None:
    one, other = two
    job_id = rig.submit(delay_s=15)
    one.tick()
    assert statements(rig, other, after_s=PERIOD_S / 2) == ["tick_due"]
    assert "promote" in statements(rig, other, after_s=PERIOD_S)
    assert rig.places(job_id) == ["ready"]


def test_a_tick_that_failed_does_not_count(rig: Rig, two: list[Sweeper]) -> None:
    one, other = two
    rig.rows("ALTER TABLE lease RENAME TO away")
    one.tick()
    rig.rows("ALTER TABLE away RENAME TO lease")
    assert "expired" in statements(rig, other, after_s=0)


def test_a_clock_that_was_set_back_keeps_no_sweeper_waiting(rig: Rig, two: list[Sweeper]) -> None:
    one, other = two
    one.tick()
    assert "expired" in statements(rig, other, after_s=-3600)

"""Loops that share their threads: none waits for another, and quiet ones cost almost nothing."""

from __future__ import annotations

import threading
from threading import Event
from typing import TYPE_CHECKING

from forge_worker.loop import Loop, Rounds

if TYPE_CHECKING:
    from support.waiting import Eventually

DAY_S = 86_400.0


class Counting(Loop):
    """Counts its steps; there is something to do only if `busy`."""

    def __init__(self, period_s: float, *, busy: bool = True) -> None:
        super().__init__(period_s)
        if period_s == DAY_S:
            self.wake()
        self.steps = 0
        self.busy = busy

    def idle(self) -> bool:
        return not self.busy

    def step(self) -> None:
        self.steps += 1


class Hanging(Counting):
    """Hangs in each step, as with a store that does not answer."""

    def __init__(self) -> None:
        super().__init__(DAY_S)
        self.answers = Event()

    def step(self) -> None:
        super().step()
        assert self.answers.wait(60)


class Failing(Counting):
    def idle(self) -> bool:
        raise OSError("the folder is gone")


def test_steps_that_hang_delay_no_other_loop(eventually: Eventually) -> None:
    rounds, hanging, others = Rounds(), [Hanging() for _ in range(20)], [Counting(0.01)]
    for loop in (*hanging, *others):
        loop.share(rounds=rounds)
    eventually(lambda: all(loop.steps == 1 for loop in hanging))
    late = Counting(0.01)
    late.share(rounds=rounds)
    before = others[0].steps
    eventually(lambda: others[0].steps > before + 3 and late.steps > 3)
    for loop in hanging:
        loop.answers.set()
    for loop in (*hanging, *others, late):
        loop.end(60)
        assert loop.over.is_set()


def test_loop_without_anything_to_do_steps_only_when_it_is_woken(eventually: Eventually) -> None:
    rounds, quiet, other = Rounds(), Counting(0.01, busy=False), Counting(0.01)
    quiet.share(rounds=rounds)
    other.share(rounds=rounds)
    eventually(lambda: other.steps > 3)
    assert quiet.steps == 0
    quiet.wake()
    eventually(lambda: quiet.steps == 1)
    quiet.busy = True
    eventually(lambda: quiet.steps > 3)
    for loop in (quiet, other):
        loop.end(60)


def test_loop_that_is_woken_during_its_step_takes_another_at_once(eventually: Eventually) -> None:
    rounds, loop = Rounds(), Hanging()
    loop.share(rounds=rounds)
    eventually(lambda: loop.steps == 1)
    loop.wake()
    loop.answers.set()
    eventually(lambda: loop.steps == 2)
    loop.end(60)


def test_loop_that_is_to_be_woken_in_a_moment_steps_then(eventually: Eventually) -> None:
    rounds, waiting, hanging = Rounds(), Counting(DAY_S), Hanging()
    for loop in (waiting, hanging):
        loop.share(rounds=rounds)
    eventually(lambda: waiting.steps == hanging.steps == 1)
    for loop in (waiting, hanging):
        loop.wake_in(DAY_S)
        loop.wake_in(0.01)
    # One in a turn steps after it.
    hanging.answers.set()
    eventually(lambda: waiting.steps == hanging.steps == 2)
    for loop in (waiting, hanging):
        loop.end(60)


def test_end_waits_for_the_step_under_way_and_no_step_follows(
    eventually: Eventually,
) -> None:
    rounds, loop = Rounds(), Hanging()
    loop.share(rounds=rounds)
    eventually(lambda: loop.steps == 1)
    loop.end(0)
    assert not loop.over.is_set()
    loop.answers.set()
    loop.end(60)
    assert loop.over.is_set()
    loop.wake()
    assert loop.steps == 1


def test_loop_that_waits_for_its_turn_ends_at_once(eventually: Eventually) -> None:
    rounds, loop = Rounds(), Counting(DAY_S)
    loop.share(rounds=rounds)
    eventually(lambda: loop.steps == 1)
    loop.end(60)
    assert loop.over.is_set()


def test_loop_takes_its_first_turn_after_a_period_unless_it_was_woken(
    eventually: Eventually,
) -> None:
    rounds, later, now = Rounds(), Counting(2 * DAY_S), Counting(DAY_S)
    for loop in (later, now):
        loop.share(rounds=rounds)
    eventually(lambda: now.steps == 1)
    for loop in (later, now):
        loop.end(60)
    # Nor does it take one because it ends.
    assert (later.steps, later.over.is_set()) == (0, True)


def test_loop_that_cannot_tell_whether_it_is_idle_steps(eventually: Eventually) -> None:
    rounds, loop = Rounds(), Failing(0.01)
    loop.share(rounds=rounds)
    eventually(lambda: loop.steps > 2)
    loop.end(60)


def test_hundreds_of_quiet_loops_need_one_thread(eventually: Eventually) -> None:
    before = threading.active_count()
    rounds, loops = Rounds(), [Counting(0.01, busy=False) for _ in range(400)]
    quick = Counting(0.01)
    quick.share(rounds=rounds, quick=True)
    for loop in loops:
        loop.share(rounds=rounds)
    eventually(lambda: quick.steps > 5)
    assert threading.active_count() <= before + 1
    for loop in (*loops, quick):
        loop.end(60)

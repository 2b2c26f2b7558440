"""A worker that crashes repeatedly waits longer each time, and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.agent import crashes
from forge_worker.agent.crashes import KILLED, counted, summary

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.agent.crashes import Crashes


class Killed(BaseException):
    """Ends a process without a message."""


def end(error: str | None, *, well: bool) -> None:
    if error is not None:
        raise OSError(error)
    if not well:
        raise Killed


class Life:
    """Starts of one worker, by a clock that moves with its waits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1e9
        self.waits: list[float] = []

    def wait(self, pause_s: float) -> None:
        self.waits.append(pause_s)
        self.now += pause_s

    def start(self, lasts_s: float = 1, error: str | None = None, *, well: bool = False) -> float:
        """Run once, and return how long it waited before."""
        before = len(self.waits)
        kept: Crashes | None = None
        try:
            with counted(self.folder, limit_s=30, clock=lambda: self.now, wait=self.wait):
                kept = crashes.read(self.folder)
                self.now += lasts_s
                end(error, well=well)
        except OSError:
            pass
        except Killed:
            # As after a kill: nothing was written at the end.
            assert kept is not None
            crashes._keep(self.folder, kept)
        return sum(self.waits[before:])


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def test_waits_grow_up_to_the_limit_and_the_last_error_is_told(life: Life) -> None:
    assert [life.start() for _ in range(3)] == [0, 0, 0]
    assert summary(life.folder)["why"] == KILLED
    assert 2.5 <= life.start(error="the disk is on fire") <= 5
    assert summary(life.folder) == {"bad_ends": 4, "why": "the disk is on fire", "waits_s": 0}
    assert 5 <= life.start() <= 10
    for _ in range(5):
        life.start()
    assert 15 <= life.start() <= 30


def test_an_end_in_good_order_ends_the_row(life: Life) -> None:
    for _ in range(5):
        life.start()
    life.start(well=True)
    assert summary(life.folder) == {}
    assert [life.start() for _ in range(3)] == [0, 0, 0]


def test_one_that_lasted_does_not_count(life: Life) -> None:
    for _ in range(3):
        life.start()
    life.start(lasts_s=120)
    assert life.start() == 0


@pytest.mark.parametrize("said", ['{"bad": ', "[]", "{}", '{"bad": "x", "why": 1}'])
def test_a_broken_file_counts_as_missing(life: Life, said: str) -> None:
    (life.folder / crashes.FILE).write_text(said)
    assert life.start() == 0

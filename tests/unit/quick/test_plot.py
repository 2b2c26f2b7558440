"""Curves and bars for a terminal."""

from __future__ import annotations

from math import inf, nan

import pytest
from forge_client.cli.show.plot import LABEL, bars, curve


def drawn(line: str) -> str:
    return line[LABEL + 2 :]


def test_a_line_goes_from_its_highest_to_its_lowest_value() -> None:
    *rows, axis = curve([(0, 3.0), (10, 1.0)], columns=LABEL + 2 + 4, rows=2)
    assert [row[:LABEL].strip() for row in rows] == ["3", "1"]
    assert drawn(rows[0])[0] != "⠀"
    assert drawn(rows[-1])[-1] != "⠀"
    assert axis.split() == ["0", "10"]
    assert all(len(row) <= LABEL + 2 + 4 for row in [*rows, axis])


@pytest.mark.parametrize("points", [[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(5, 0.0), (5, 2.0)]])
def test_what_has_no_extent_is_drawn_too(points: list[tuple[float, float]]) -> None:
    *rows, _ = curve(points, columns=40, rows=4)
    assert any(drawn(row).strip("⠀") for row in rows)


def test_what_is_not_finite_is_a_gap_and_breaks_the_line() -> None:
    *rows, _ = curve([(0, 1.0), (1, nan), (2, inf), (20, 1.0)], columns=LABEL + 2 + 20, rows=1)
    assert drawn(rows[0]).strip("⠀").count("⠀") == 18
    assert curve([(0, nan)], columns=40) == []
    assert curve([], columns=40) == []


def test_a_bar_is_as_long_as_its_value_is_of_the_largest() -> None:
    lines = bars([("lr=0.1", 1.0), ("lr=1", 4.0), ("none", 0.0), ("broken", nan)], columns=38)
    lengths = [line.count("█") for line in lines]
    assert lengths == [5, 20, 0, 0]
    assert [line.split()[-1] for line in lines] == ["1", "4", "0", "nan"]
    assert bars([], columns=40) == []

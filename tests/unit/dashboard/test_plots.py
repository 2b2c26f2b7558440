"""Runs as lines across axes and as points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_functions.dashboard.routes.runs.plots import axis

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "places", "ticks"),
    [
        ([1, 2, 3], [0, 0.5, 1], ["1", "2", "3"]),
        ([0.001, 0.1, 0.01], [0, 1, 0.5], ["0.001", "0.01", "0.1"]),
        ([-1, 100, None, NAN, "nan"], None, None),
        ([0.0, 50, None, NAN], [0, 1, None, None], ["0", "25", "50"]),
        (["sgd", "adam", None, "sgd"], [1, 0, None, 1], ["adam", "sgd"]),
        ([True, False], [1, 0], ["false", "true"]),
    ],
)
def test_places_and_ticks(
    values: Sequence[object], places: list[float | None] | None, ticks: list[str] | None
) -> None:
    made = axis("x", values)
    assert made is not None
    if places is not None:
        assert made.places == pytest.approx(places)
        assert [word for _, word in made.ticks] == ticks
    else:
        assert not made.numeric, "with a word among them, they are words"


@pytest.mark.parametrize(
    "values", [[], [None], [3, 3], ["a", "a"], [NAN, NAN], list("abcdefghijkl")]
)
def test_what_tells_nothing_is_no_axis(values: list[object]) -> None:
    assert axis("x", values) is None

"""Runs as lines across axes and as points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_functions.dashboard.routes.runs.plots import Plots, axis
from forge_schema.model.results import Measured, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "places", "ticks"),
    [
        ([1, 2, 3], [0, 0.5, 1], ["1", "2", "3"]),
        ([0.001, 0.1, 0.01], [0, 1, 0.5], ["0.001", "0.01", "0.1"]),
        ([-1, 100, None, NAN, "nan"], None, None),
        ([1, 2, "NaN", "Infinity"], [0, 1, None, None], ["1", "1.5", "2"]),
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


def test_what_is_not_drawn_has_no_part_in_a_scale() -> None:
    given = [
        {"lr": 0.1},
        {"lr": 0.2, "batch": 8},
        {"batch": 64},
        {"other": 1},
        {"lr": 5},
        {"lr": 7},
    ]
    losses: list[float | str] = [1, 2, 4, 5e-138, "NaN", "Infinity"]
    runs = [
        Run.model_validate({
            "job_id": n, "name": "run", "owner": "ann", "state": "succeeded",
            "submitted_at": "2026-11-30T00:00Z", "parameters": parameters,
            "metrics": {"loss": Measured.model_validate({"last": loss})},
        })
        for n, (parameters, loss) in enumerate(zip(given, losses, strict=True))
    ]  # fmt: skip
    plots = Plots(runs, ["parameters.lr", "parameters.batch"], "loss")
    assert [run.job_id for run in plots.runs] == [0, 1, 2]
    assert [axis.ticks[0][1] for axis in plots.axes] == ["0.1", "8", "1"]
    assert [(cloud.across.name, cloud.down.ticks[-1][1]) for cloud in plots.clouds] == [
        ("parameters.lr", "2"),
        ("parameters.batch", "4"),
    ], "each by the points that it has"
    assert Plots(runs, ["parameters.lr"], "loss").lines == [], "of one number, points say it all"
    assert plots.axes[-1].called == "loss"

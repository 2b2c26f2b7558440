"""A benchmark's matrix, and the comparison of its jobs' results."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest
from forge_client import ClientError
from forge_client.project.matrix import Scalar, Value, expanded, from_options, from_toml
from forge_client.project.request import Request
from forge_client.results.comparison import compare, usual_metric
from forge_schema.model.results import SweepPoint
from forge_schema.model.states import StateWord

MANY = ",".join(map(str, range(200)))
NUMBERS = ["0", "10", "-3", "1.0", "0.10", "16.5", "1e4", "1E5", "1e22", "1e-4", "2.5e-3", "10e6"]
# Not JSON's, or the name of a fold, a version or a commit.
WORDS = ["01", "-01", "00", "1_000", "+5", ".5", "5.", "0x10", "1e400", "9" * 5000, "\u0661"]
WORDS += ["NaN", "inf", "null", "None", "True", "3.10", "2.1.0", "12e45", "1234e56", "0e12e"]
COMMAND = ["run", "--batch={batch}", "{p}/{repeat}", "{{p}} {}"]
BASE = Request().changed({"name": "bench", "command": COMMAND})


def points(
    *options: str, repeat: int = 1, key: str | None = None, base: Request = BASE
) -> list[Request]:
    return expanded(base, from_options(options), repeat=repeat, sweep="s", key=key)


def test_every_combination_is_a_job() -> None:
    jobs = points("batch=16,32", "p=fp16,0.10,true", repeat=2)
    assert [job.command for job in jobs] == [
        ["run", f"--batch={batch}", f"{p}/{turn}", "{p} {}"]
        for batch in ("16", "32")
        for p in ("fp16", "0.10", "true")
        for turn in (1, 2)
    ]
    assert jobs[2].parameters == {"batch": 16, "p": 0.1, "repeat": 1}
    assert jobs[-1].parameters == {"batch": 32, "p": True, "repeat": 2}
    assert jobs[-1].name == "bench batch=32 p=true repeat=2"
    assert {(job.kind, job.sweep, job.idempotency_key) for job in jobs} == {
        ("benchmark", "s", None)
    }


def test_a_value_that_looks_like_a_placeholder_stays() -> None:
    (job,) = points("batch={p}", "p={batch}")
    assert job.command == ["run", "--batch={p}", "{batch}/1", "{p} {}"]


def test_a_key_for_each_point_whatever_else_there_is() -> None:
    keys = [job.idempotency_key for job in points("batch=1,2", "p=x", key="k")]
    assert len(set(keys)) == 2
    assert keys[1] == points("batch=2", "p=x", key="k")[0].idempotency_key
    assert keys[0] != points("batch=1", "p=x", key="other")[0].idempotency_key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["batch=1"], "{p}, which is no parameter"),
        (["batch=1,1.0,1", "p=x"], "has 1 twice"),
        (["batch=1", "batch=2", "p=x"], "names batch twice"),
        (["batch=0.1..5e-1", "p=x"], "is a range"),
        (["batch", "p=x"], "is not a parameter"),
        (["batch=", "p=x"], "is not a parameter"),
        (["repeat=1", "p=x"], "cannot be a parameter"),
        (["a-b=1", "p=x"], "cannot be a parameter"),
        (
            [f"batch={','.join(map(str, range(200)))}", f"p={','.join(map(str, range(51)))}"],
            "10200",
        ),
    ],
)
def test_what_is_no_matrix_is_refused(options: list[str], said: str) -> None:
    with pytest.raises(ClientError) as refused:
        points(*options)
    assert said in refused.value.message
    assert refused.value.hint


def test_forge_toml_has_values_of_their_own_kinds() -> None:
    assert from_toml({"a": [1, 2.5, "x", True]}) == {
        "a": [Value(1, "1"), Value(2.5, "2.5"), Value("x", "x"), Value(True, "true")]  # noqa: FBT003  a value
    }
    assert from_toml({"fold": ["01", "1e5"]})["fold"] == [Value("01", "01"), Value("1e5", "1e5")]
    wrong: list[dict[str, Any]] = [
        {"a": [[1]]},
        {"a": []},
        {"a": [1, 1]},
        {"a": [math.nan]},
        {"a": [-math.inf]},
        {"a": "01"},
        {"a": 0.1},
        {"a": {"b": 1}},
    ]
    for table in wrong:
        with pytest.raises(ClientError):
            from_toml(table)


def test_numpys_values_are_numbers() -> None:
    values = [*np.logspace(-2, -1, 2), *np.arange(3, 4)]
    assert from_toml({"a": values})["a"] == [Value(0.01, "0.01"), Value(0.1, "0.1"), Value(3, "3")]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[(word, json.loads(word)) for word in NUMBERS],
        *[(word, word) for word in WORDS],
        ("true", True),
        ("false", False),
    ],
)
def test_a_value_is_a_number_only_if_nothing_of_it_is_lost(word: str, value: Scalar) -> None:
    (found,) = from_options([f"a={word}"])["a"]
    assert (found.text, type(found.value), found.value) == (word, type(value), value)


def test_words_that_differ_only_in_zeros_are_different_points() -> None:
    base = BASE.model_copy(update={"command": ["run", "{id}"]})
    jobs = points("id=001,01,1", key="k", base=base)
    assert [job.parameters for job in jobs] == [{"id": "001"}, {"id": "01"}, {"id": 1}]
    assert len({job.idempotency_key for job in jobs}) == 3


def point(
    number: int,
    value: Any,  # noqa: ANN401  whatever JSON holds
    state: StateWord = StateWord.SUCCEEDED,
    **parameters: Any,  # noqa: ANN401  as above
) -> SweepPoint:
    return SweepPoint(
        job_id=number, name="n", state=state, parameters=parameters, result={"x": {"y": value}}
    )


def brute(values: list[float]) -> tuple[float, float, float | None]:
    """Return mean, median and the sample's deviation, by their definitions."""
    mean = sum(values) / len(values)
    ordered = sorted(values)
    middle = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    if len(values) == 1:
        return mean, middle, None
    return mean, middle, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_compared_as_by_hand(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  no secret hangs on it
    sweeps = {
        name: [
            point(
                n,
                dice.choice([dice.uniform(1, 9), dice.randint(1, 9)]),
                dice.choice([StateWord.SUCCEEDED, StateWord.SUCCEEDED, StateWord.FAILED]),
                batch=dice.choice([1, True, "1", 1.5]),
                repeat=n,
            )
            for n in range(dice.randint(1, 40))
        ]
        for name in ("a", "b")[: dice.randint(1, 2)]
    }
    found = compare(sweeps, "x.y")
    by_hand: dict[tuple[str, str], list[float]] = {}
    for name, jobs in sweeps.items():
        for job in jobs:
            if job.state == "succeeded":
                assert job.result is not None
                place = name, repr(job.parameters["batch"])
                by_hand.setdefault(place, []).append(job.result["x"]["y"])
    assert found.without == sum(j.state == "failed" for jobs in sweeps.values() for j in jobs)
    assert [(g.sweep, repr(g.by["batch"]), g.count) for g in found.groups] == [
        (*place, len(values)) for place, values in by_hand.items()
    ]
    first = next(iter(by_hand), None)
    for group, (place, values) in zip(found.groups, by_hand.items(), strict=True):
        mean, middle, spread = brute(values)
        assert [group.mean, group.median] == pytest.approx([mean, middle])
        assert group.spread == (None if spread is None else pytest.approx(spread))
        against = first if len(sweeps) == 1 else ("a", place[1])
        base = by_hand.get(against) if against else None
        assert group.ratio == (pytest.approx(mean / brute(base)[0]) if base else None)


def test_an_unknown_name_is_refused_and_the_known_ones_are_told() -> None:
    sweeps = {"s": [point(1, 2.5, batch=4), point(2, 3, batch=8)]}
    with pytest.raises(ClientError, match="no job has a parameter bach") as refused:
        compare(sweeps, "x.y", ["batch", "bach"])
    assert (refused.value.exit_code, refused.value.hint) == (2, "choose one of batch")
    with pytest.raises(ClientError, match=r"no job reports a number named x\.z") as refused:
        compare(sweeps, "x.z")
    assert (
        refused.value.hint
        == "choose one of result.x.y, seconds, gpu_seconds, energy_j, cost, last_seconds"
    )
    # Nobody can tell yet what jobs will say that have said nothing.
    quiet = SweepPoint(job_id=1, name="n", state=StateWord.QUEUED, parameters={"batch": 1})
    assert compare({"s": [quiet]}, "x.z", ["batch"]).without == 1
    assert compare(sweeps, "energy_j").without == 2


def test_the_number_of_a_trial_is_nothing_to_group_by() -> None:
    points = [point(n, n, trial=n, lr=0.1) for n in range(3)]
    assert [(one.by, one.count) for one in compare({"s": points}, "x.y").groups] == [
        ({"lr": 0.1}, 3)
    ]


def test_what_is_no_number_is_left_out() -> None:
    values = [1, None, "2", True, float("inf"), {"z": 1}, [3]]
    found = compare({"s": [point(n, value) for n, value in enumerate(values)]}, "x.y")
    assert [(g.count, g.mean, g.spread, g.ratio) for g in found.groups] == [(1, 1.0, None, 1.0)]
    assert found.without == 6
    dotted = SweepPoint(
        job_id=1, name="n", state=StateWord.QUEUED, parameters={}, result={"a.b": 4, "a": {"b": 5}}
    )
    assert dotted.value("a.b") == dotted.value("result.a.b") == 4
    assert dotted.value("seconds") is None
    assert compare({"s": [point(1, 0)]}, "x.y").groups[0].ratio is None


def test_a_sweep_is_compared_by_metrics_too() -> None:
    ended: list[tuple[float | str, float | None]] = [(0.5, 0.25), (1.5, 0.75), ("NaN", 0.1)]
    points = [
        SweepPoint.model_validate({
            "job_id": n, "name": "n", "state": "succeeded", "parameters": {"lr": n},
            "metrics": {
                "loss": {"last": last, "min": least, "max": 9},
                "acc": {"last": 1}, "lr": {"last": n}, "progress": {"last": 1},
            },
            "result": {"acc": 7},
        })
        for n, (last, least) in enumerate(ended)
    ]  # fmt: skip
    for metric, means in (
        ("loss", [0.5, 1.5]),
        ("metrics.loss.best", [0.25, 0.75, 0.1]),
        ("loss.max", [9, 9, 9]),
        ("acc", [7, 7, 7]),
        ("metrics.acc", [1, 1, 1]),
    ):
        found = compare({"s": points}, metric)
        assert [group.mean for group in found.groups] == means, metric
        assert found.without == 3 - len(means)
    assert usual_metric({"s": points}) == "loss"
    assert usual_metric({"s": [point(1, 0)]}) == "seconds"
    assert compare({"s": points}, "loss").others == [
        *("seconds", "gpu_seconds", "energy_j", "result.acc", "metrics.acc", "cost"),
        "last_seconds",
    ]
    assert compare({"s": points[2:]}, "loss").without == 1
    with pytest.raises(ClientError, match="no job reports a number named los"):
        compare({"s": points}, "los")

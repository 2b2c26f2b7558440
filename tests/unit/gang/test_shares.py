"""The batch of a gang is split by speed, and within memory."""

from __future__ import annotations

import pytest
from forge_schema.model.worker import Speed
from forge_worker.gang.members import RankPace, batches, pace_of, shares
from hypothesis import given
from hypothesis import strategies as st

SPEEDS = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.floats(1e-3, 1e9), st.integers(1, 1024)), min_size=1, max_size=40))
def test_batches_follow_the_speeds_and_fill_one_memory(
    members: list[tuple[float, int]],
) -> None:
    speeds, tops = [speed for speed, _ in members], [top for _, top in members]
    made = batches(speeds, tops)
    assert all(1 <= batch <= top for batch, top in zip(made, tops, strict=True))
    assert any(batch == top for batch, top in zip(made, tops, strict=True))
    in_order = [batch for _, batch in sorted(zip(speeds, made, strict=True))]
    assert in_order == sorted(in_order)


@given(SPEEDS)
def test_shares_sum_to_one(speeds: list[float]) -> None:
    assert sum(shares(speeds)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("speeds", "tops", "made"),
    [
        ([3.0, 1.0], [64, 64], [64, 21]),
        ([3.0, 1.0], [64, 8], [24, 8]),
        ([1000.0, 1.0], [64, 64], [64, 1]),
        ([2.0, None], [64, 32], [32, 32]),
        ([2.0, 0.0], [64, 32], [32, 32]),
        ([2.0, float("inf")], [64, 32], [32, 32]),
        ([], [], []),
    ],
)
def test_known_batches(speeds: list[float | None], tops: list[int], made: list[int]) -> None:
    assert batches(speeds, tops) == made


def test_a_rank_has_the_speed_of_its_gpu_or_of_its_cpus() -> None:
    measured = Speed("torch", cpus=8, cpu={"fp32": 400.0}, cuda={"fp32": 5e4, "bf16": 4e5})
    assert pace_of(measured, "cuda", 1) == RankPace(5e4, "torch")
    assert pace_of(measured, "cpu", 2) == RankPace(100.0, "torch")
    assert pace_of(measured, "rocm", 2) == RankPace()
    assert pace_of(Speed("python", cpu={"fp64": 0.05}), "cpu", 1) == RankPace()
    assert pace_of(Speed("torch", cpu={"fp32": 0.0}), "cpu", 1) == RankPace()
    assert pace_of(None, "cpu", 1) == RankPace()

"""The batch of a gang is split by speed: exactly, monotonically, and within memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.worker import Speed
from forge_worker.gang.shares import Pace, batches, pace_of, shares
from hypothesis import assume, given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEEDS = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=40)


@given(SPEEDS, st.integers(0, 100_000))
def test_batches_sum_exactly_and_each_rank_has_one(speeds: list[float], more: int) -> None:
    whole = len(speeds) + more
    made = batches(whole, speeds)
    assert sum(made) == whole
    assert min(made) >= 1


@given(SPEEDS, st.integers(0, 100_000))
def test_a_faster_rank_never_gets_less(speeds: list[float], more: int) -> None:
    speeds.sort()
    made = batches(len(speeds) + more, speeds)
    assert made == sorted(made) or _only_ties_differ(speeds, made)


def _only_ties_differ(speeds: Sequence[float], made: Sequence[int]) -> bool:
    pairs = zip(speeds, speeds[1:], made, made[1:], strict=False)
    return all(a <= b or (one == other and a == b + 1) for one, other, a, b in pairs)


@given(SPEEDS, st.data())
def test_no_rank_gets_more_than_its_memory_holds(speeds: list[float], data: st.DataObject) -> None:
    tops = data.draw(
        st.lists(
            st.one_of(st.none(), st.integers(1, 1000)), min_size=len(speeds), max_size=len(speeds)
        )
    )
    whole = data.draw(st.integers(len(speeds), 5000))
    room = sum(whole if top is None else top for top in tops)
    assume(whole <= room)
    made = batches(whole, speeds, tops)
    assert sum(made) == whole
    for batch, top in zip(made, tops, strict=True):
        assert 1 <= batch <= (whole if top is None else top)


@given(SPEEDS, st.integers(0, 100_000))
def test_without_limits_a_batch_is_less_than_one_sample_from_its_share(
    speeds: list[float], more: int
) -> None:
    whole = len(speeds) + more
    exact = [whole * share for share in shares(speeds)]
    assume(min(exact) >= 1)
    for batch, wanted in zip(batches(whole, speeds), exact, strict=True):
        assert abs(batch - wanted) < 1 + 1e-6 * wanted


@given(SPEEDS)
def test_shares_sum_to_one(speeds: list[float]) -> None:
    assert sum(shares(speeds)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("whole", "speeds", "most", "made"),
    [
        (64, [3.0, 1.0], None, [48, 16]),
        (10, [1.0, 1.0, 1.0], None, [4, 3, 3]),
        (4, [1000.0, 1.0, 1.0], None, [2, 1, 1]),
        (100, [3.0, 1.0], [50, None], [50, 50]),
        (100, [8.0, 1.0, 1.0], [50, None, None], [50, 25, 25]),
        # One is held at its memory, and another at its one sample.
        (20, [100.0, 10.0, 0.001], [8, None, None], [8, 11, 1]),
        (9, [2.0, None, 5.0], None, [3, 3, 3]),
        (9, [2.0, 0.0, 5.0], None, [3, 3, 3]),
        (9, [2.0, float("inf"), 5.0], None, [3, 3, 3]),
    ],
)
def test_known_splits(
    whole: int, speeds: list[float | None], most: list[int | None] | None, made: list[int]
) -> None:
    assert batches(whole, speeds, most) == made


@pytest.mark.parametrize(
    ("whole", "speeds", "most"),
    [(1, [1.0, 1.0], None), (9, [1.0, 1.0], [4, 4]), (2, [1.0, 1.0], [0, None]), (1, [], None)],
)
def test_an_impossible_split_is_refused(
    whole: int, speeds: list[float | None], most: list[int | None] | None
) -> None:
    with pytest.raises(ValueError, match="cannot be split"):
        batches(whole, speeds, most)


def test_a_limit_for_each_rank_or_none() -> None:
    with pytest.raises(ValueError, match="2 speeds, but 1 limits"):
        batches(4, [1.0, 1.0], [4])


def test_a_rank_has_the_speed_of_its_gpu_or_of_its_cpus() -> None:
    measured = Speed("torch", cpus=8, cpu={"fp32": 400.0}, cuda={"fp32": 5e4, "bf16": 4e5})
    assert pace_of(measured, "cuda", 1) == Pace(5e4, "torch")
    assert pace_of(measured, "cpu", 2) == Pace(100.0, "torch")
    assert pace_of(measured, "rocm", 2) == Pace()
    assert pace_of(Speed("python", cpu={"fp64": 0.05}), "cpu", 1) == Pace()
    assert pace_of(Speed("torch", cpu={"fp32": 0.0}), "cpu", 1) == Pace()
    assert pace_of(None, "cpu", 1) == Pace()

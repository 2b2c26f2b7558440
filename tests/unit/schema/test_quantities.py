"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from forge_schema.model.quantities import (
    capacity,
    counted,
    duration_text,
    seconds,
    size,
    size_text,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1d 2h", 93600), ("250ms", 0.25),
     ("10min", 600), ("1w", 604_800), ("45", 45), (7, 7), (0.5, 0.5)],
)  # fmt: skip
def test_durations(text: object, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1x", "-3s", "1h-2m", "1,5h", None, True, [1], "s1"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512MB", 512 << 20), ("512 MiB", 512 << 20), ("2g", 2 << 30), ("1.5K", 1536), ("10", 10),
     ("10B", 10), ("1TB", 1 << 40)],
)  # fmt: skip
def test_sizes(text: object, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "5X", "-1GB", 512, None, "1GBB", "1 G B"])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size(text)


def test_a_capacity_is_a_size() -> None:
    assert [capacity(text) for text in ("1.5GB", "1025K", "0")] == [1536 << 20, 1025 << 10, 0]


@pytest.mark.parametrize("text", ["2", "512", "1.5K", "10B"])
def test_a_capacity_that_lacks_its_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is \d+ bytes; write 512MiB or 2GiB"):
        capacity(text)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (34 << 10, "34 KiB"),
        (5 << 40, "5 TiB"),
        (int(79.6 * (1 << 30)), "79.6 GiB"),
        (200 << 20, "200 MiB"),
    ],
)
def test_sizes_are_shown_short(count: int, shown: str) -> None:
    assert size_text(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (-3, "0 s"),
        (0.04, "0 s"),
        (9.94, "9.9 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
        (86_401, "1 d"),
    ],
)
def test_durations_are_shown_by_their_two_largest_units(count: float, shown: str) -> None:
    assert duration_text(count) == shown


@given(st.integers(min_value=10, max_value=10**9))
def test_a_duration_shown_reads_back_within_its_second_unit(count: int) -> None:
    assert 0 <= count - seconds(duration_text(count)) < 3600


@pytest.mark.parametrize(
    ("count", "one", "many", "shown"),
    [
        (0, "file", "", "0 files"),
        (1, "file", "", "1 file"),
        (1_234_567, "file", "", "1234567 files"),
        (1.0, "CPU", "", "1 CPU"),
        (0.5, "CPU", "", "0.5 CPUs"),
        (2, "retry", "retries", "2 retries"),
    ],
)
def test_a_count_is_shown_with_its_noun(count: float, one: str, many: str, shown: str) -> None:
    assert counted(count, one, many) == shown

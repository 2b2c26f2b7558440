"""Idempotency keys that the queue makes up."""

from itertools import count, pairwise

import pytest
from forge_schema.queue import submission


def test_keys_made_later_sort_behind_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    # From a millisecond to centuries, so that the number of digits must not matter.
    ticks = (10 ** (6 + n // 2) * (1 + n % 2) for n in count())
    monkeypatch.setattr(submission, "time_ns", lambda: next(ticks))
    keys = [f"{submission._stem()}0" for _ in range(28)]
    assert all(earlier < later for earlier, later in pairwise(keys))


def test_keys_made_at_the_same_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "time_ns", lambda: 1)
    assert len({submission._stem() for _ in range(300)}) == 300

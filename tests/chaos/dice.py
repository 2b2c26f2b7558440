"""Random numbers that are the same in every run of a seed."""

from __future__ import annotations

from random import Random


def dice_of(seed: int, *use: object) -> Random:
    """Return a random generator for one purpose, independent of all others."""
    words = " ".join(map(str, (seed, *use)))
    return Random(words)  # noqa: S311  it is to be repeated

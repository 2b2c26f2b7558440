"""Chance that is the same in every run of one seed."""

from __future__ import annotations

from random import Random


def dice_of(seed: int, *use: object) -> Random:
    """Return dice of their own for one use, so that no other use moves them."""
    words = " ".join(map(str, (seed, *use)))
    return Random(words)  # noqa: S311  it is to be repeated

"""The style sheet's contrast meets WCAG 2.2 AA, in light and in dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

SHEET = (files("forge_functions.dashboard") / "static" / "forge.css").read_text("utf-8")
THEMES = {"light": r":root \{(.*?)\}", "dark": r':root\[data-theme="dark"\] \{(.*?)\}'}
TEXT, PART = 4.5, 3.0
GROUNDS = ("ground", "card", "raise")
TONES = ("good", "bad", "warn", "wait")
PAIRS = [
    *((ink, ground, TEXT) for ink in ("ink", "ink-2", "accent", "bad") for ground in GROUNDS),
    *((tone, f"{tone}-soft", TEXT) for tone in (*TONES, "accent")),
    ("ink", "warn-soft", TEXT),
    ("accent-ink", "accent", TEXT),
    ("ground", "ink", TEXT),
    *(("line-2", ground, PART) for ground in ("card", "ground")),
    *((f"chart-{number}", "card", PART) for number in range(1, 7)),
]


def tokens(theme: str) -> dict[str, str]:
    found = re.search(THEMES[theme], SHEET, re.DOTALL)
    assert found is not None
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", found[1]))


def luminance(colour: str) -> float:
    """Return the relative luminance, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_every_pair_that_meets_is_told_apart(theme: str) -> None:
    known = tokens(theme)
    weak = {
        (ink, ground): round(contrast(known[ink], known[ground]), 2)
        for ink, ground, least in PAIRS
        if contrast(known[ink], known[ground]) < least
    }
    assert weak == {}


def test_the_systems_dark_is_the_chosen_one() -> None:
    found = re.search(r':root\[data-theme="system"\] \{(.*?)\}', SHEET, re.DOTALL)
    assert found is not None
    assert dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", found[1])) == tokens("dark")

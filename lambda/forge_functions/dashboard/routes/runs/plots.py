"""Pictures of many runs: parameters and what came of them as lines across axes, and as points."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log10

from forge_schema.model.results import Run

from forge_functions.dashboard.formats import brief

# The size of a picture, of the room beside it for names and ticks, and of the axes of points.
HEIGHT, MARGIN, LEFT, SIDE = 180, 24, 72, 210
# How wide the lines' picture should be, and the least and the most space between two axes.
WIDE, NARROW, BROAD = 1060, 150, 500
# An axis of more words, or a logarithmic one of less than so many times, would say little.
WORDS, LOGARITHMIC = 8, 10
WIDTH_OF_WORD = 16
# From the least of what came of it to the most.
TONES = 5


@dataclass(frozen=True)
class Axis:
    """A column as an axis: where each run lies from 0 to 1, None if it has no value."""

    name: str
    places: Sequence[float | None]
    ticks: Sequence[tuple[float, str]]
    numeric: bool
    logarithmic: bool = False

    @property
    def called(self) -> str:
        """Its name as a heading has it: `loss best`, or `lr, log` if it is logarithmic."""
        name = self.name.split(".", 1)[-1].replace(".", " ")
        return f"{name}, log" if self.logarithmic else name


def axis(name: str, values: Sequence[object]) -> Axis | None:
    """Return the axis of these values; None if they are one, or are too many words."""
    present = [value for value in values if value is not None]
    numbers = [float(v) for v in present if isinstance(v, int | float) and not isinstance(v, bool)]
    finite = [number for number in numbers if isfinite(number)]
    if len(numbers) == len(present) and finite and min(finite) < max(finite):
        return _scale(name, values, min(finite), max(finite))
    words = sorted({_word(value) for value in present})
    if len(numbers) == len(present) or not 1 < len(words) <= WORDS:
        return None
    at = {word: n / (len(words) - 1) for n, word in enumerate(words)}
    places = [None if value is None else at[_word(value)] for value in values]
    return Axis(name, places, [(place, word) for word, place in at.items()], numeric=False)


def _scale(name: str, values: Sequence[object], least: float, most: float) -> Axis:
    logarithmic = least > 0 and most / least >= LOGARITHMIC

    def place(value: object) -> float | None:
        if not isinstance(value, int | float) or not isfinite(value):
            return None
        if logarithmic:
            return log10(value / least) / log10(most / least)
        return (value - least) / (most - least)

    middle = (least * most) ** 0.5 if logarithmic else (least + most) / 2
    ticks = [(0.0, str(brief(least))), (0.5, str(brief(middle))), (1.0, str(brief(most)))]
    places = [place(value) for value in values]
    return Axis(name, places, ticks, numeric=True, logarithmic=logarithmic)


def _word(value: object) -> str:
    return str(brief(value))[:WIDTH_OF_WORD]


@dataclass(frozen=True)
class Plots:
    """The pictures of runs by some of their columns, and one that came of them."""

    all_runs: Sequence[Run]
    given: Sequence[str]
    target: str

    @cached_property
    def runs(self) -> list[Run]:
        """Those of which something came."""
        return [run for run in self.all_runs if run.value(self.target) is not None]

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes, the target's last; none if the picture would say nothing."""
        made = [axis(name, [run.value(name) for run in self.runs]) for name in self.given]
        axes = [each for each in made if each]
        last = axis(self.target, [run.value(self.target) for run in self.runs])
        return [*axes, last] if axes and last and last.numeric else []

    @property
    def width(self) -> int:
        """How wide the lines' picture is."""
        return self.across(len(self.axes) - 1) + MARGIN + NARROW // 2

    @property
    def lines(self) -> list[tuple[Run, int, str]]:
        """Each run that has values on two axes or more, its tone, and the points of its line."""
        drawn = []
        for n, run in enumerate(self.runs):
            places = [(i, each.places[n]) for i, each in enumerate(self.axes)]
            points = [f"{self.across(i)},{self.down(at):.1f}" for i, at in places if at is not None]
            if len(points) > 1:
                drawn.append((run, self._tone(n), " ".join(points)))
        return drawn

    @property
    def clouds(self) -> list[tuple[Axis, list[tuple[Run, float, float]]]]:
        """For each numeric axis the points of the runs: across by it, down by the target."""
        *given, last = self.axes
        return [
            (each, [
                (run, LEFT + SIDE * x, self.down(y))
                for run, x, y in zip(self.runs, each.places, last.places, strict=True)
                if x is not None and y is not None
            ])
            for each in given if each.numeric
        ]  # fmt: skip

    def across(self, n: int) -> int:
        """Return where an axis stands."""
        return MARGIN + n * min(max(WIDE // (len(self.axes) - 1), NARROW), BROAD)

    @staticmethod
    def down(place: float) -> float:
        """Return how far below the top a place of an axis is."""
        return MARGIN + (1 - place) * HEIGHT

    def _tone(self, n: int) -> int:
        at = self.axes[-1].places[n]
        return 0 if at is None else min(int(at * TONES), TONES - 1)

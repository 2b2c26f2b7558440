"""Pictures of many runs: parameters and what came of them as lines across axes, and as points."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log10

from forge_schema.model.fields import NOT_FINITE
from forge_schema.model.results import TABLES, Run, as_numbers

from forge_functions.dashboard.formats import brief
from forge_functions.dashboard.words import t

# How high a picture is, without the room around it; an axis takes at least so much across.
HEIGHT, NARROW = 180, 150
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
        """Its name as a heading has it: `best loss`, or `lr`."""
        table, _, key = self.name.partition(".")
        name = key if table in TABLES and key else self.name
        metric, _, kind = name.rpartition(".")
        of_kind = {
            "best": t("best {name}", name=metric),
            "min": t("least {name}", name=metric),
            "max": t("greatest {name}", name=metric),
        }
        return of_kind.get(kind, name) if metric else name

    @property
    def scaled(self) -> str:
        """The same beside the axis, which may be logarithmic."""
        return t("{name}, log scale", name=self.called) if self.logarithmic else self.called


def axis(name: str, values: Sequence[object]) -> Axis | None:
    """Return the axis of these values; None if they are one, or are too many words."""
    values = as_numbers(list(values))
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
class ScatterPlot:
    """Runs as points: across by a parameter, down by what came of them."""

    across: Axis
    down: Axis
    points: Sequence[tuple[Run, float, float]]


@dataclass(frozen=True)
class Plots:
    """The pictures of runs by some of their columns, and one that came of them.

    Only what is drawn has a part in a scale: a run without the target or without any of the
    parameters is in no picture.
    """

    all_runs: Sequence[Run]
    given: Sequence[str]
    target: str

    @cached_property
    def runs(self) -> list[Run]:
        """Those that are drawn."""
        came = [run for run in self.all_runs if run.value(self.target) not in (None, *NOT_FINITE)]
        told = [one.name for one in self._given(came)]
        return [run for run in came if any(run.value(name) is not None for name in told)]

    def _given(self, runs: Sequence[Run]) -> list[Axis]:
        made = (axis(name, [run.value(name) for run in runs]) for name in self.given)
        return [each for each in made if each]

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes, the target's last; none if the picture would say nothing."""
        axes = self._given(self.runs)
        last = axis(self.target, [run.value(self.target) for run in self.runs])
        return [*axes, last] if axes and last and last.numeric else []

    @property
    def width(self) -> int:
        """How wide the lines' picture is at least."""
        return NARROW * len(self.axes)

    @property
    def lines(self) -> list[tuple[Run, int, str]]:
        """Each run, its tone, and the points of its line. Of one number, its points say it all."""
        if len(self.axes) == 2 and self.clouds:  # noqa: PLR2004 - a parameter and the target
            return []
        drawn = []
        for n, run in enumerate(self.runs):
            places = [(i, each.places[n]) for i, each in enumerate(self.axes)]
            points = [f"{i},{self.down(at):.1f}" for i, at in places if at is not None]
            drawn.append((run, self._tone(n), " ".join(points)))
        return drawn

    @cached_property
    def clouds(self) -> list[ScatterPlot]:
        """The points by each parameter that is a number."""
        clouds = (self._cloud(each.name) for each in self.axes[:-1] if each.numeric)
        return [cloud for cloud in clouds if cloud]

    def _cloud(self, name: str) -> ScatterPlot | None:
        runs = [run for run in self.runs if run.value(name) is not None]
        across, down = (axis(of, [run.value(of) for run in runs]) for of in (name, self.target))
        if not across or not down:
            return None
        places = zip(runs, across.places, down.places, strict=True)
        points = [(run, x, y) for run, x, y in places if x is not None and y is not None]
        return ScatterPlot(across, down, points)

    @staticmethod
    def down(place: float) -> float:
        """Return how far below the top a place of an axis is."""
        return (1 - place) * HEIGHT

    def _tone(self, n: int) -> int:
        at = self.axes[-1].places[n]
        return 0 if at is None else min(int(at * TONES), TONES - 1)

"""Curves and bars for a terminal, drawn with characters."""

import math
from collections.abc import Iterator, Sequence

from forge_client.cli.show.narration import width

Point = tuple[float, float]

# A character of braille has two dots beside each other, four above each other.
ACROSS, DOWN = 2, 4
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
ROWS = 10
LABEL = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
LONGEST_NAME = 40


def curve(points: Sequence[Point], columns: int, rows: int = ROWS) -> list[str]:
    """Return the lines of a curve with its axes; what is not finite is a gap.

    Args:
        points: from left to right.
        columns: the width of the lines, labels included.
        rows: the height of the plot without its axis.
    """
    finite = [point for point in points if all(map(math.isfinite, point))]
    if not finite:
        return []
    across = max(columns - LABEL - 2, 1)
    lefts, heights = zip(*finite, strict=True)
    dots = set(_line(points, (min(lefts), max(lefts)), (min(heights), max(heights)), across, rows))
    labels = {0: max(heights), rows - 1: min(heights)}
    lines = [
        f"{_number(labels[row]) if row in labels else '':>{LABEL}} ┤{_row(dots, row, across)}"
        for row in range(rows)
    ]
    first, last = _number(min(lefts)), _number(max(lefts))
    return [*lines, f"{'':>{LABEL}}  {first}{last:>{max(across - len(first), 1)}}"]


def bars(values: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """Return a line for each named value: a bar from 0, as long as the value is of the largest."""
    names = [name[:LONGEST_NAME] for name, _ in values]
    label = max(map(width, names), default=0)
    room = max(columns - label - LABEL - 2, 1)
    most = max((abs(value) for _, value in values if math.isfinite(value)), default=0) or 1
    return [
        f"{name}{' ' * (label - width(name))} {_bar(abs(value) / most, room)} {_number(value)}"
        for name, (_, value) in zip(names, values, strict=True)
    ]


def sparkline(values: Sequence[float], least: float | None = None) -> str:
    """Return a curve of one line, from the `least` to the largest value."""
    if not values:
        return ""
    low = min(values) if least is None else least
    extent = max(values) - low
    places = [(value - low) / extent if extent else 0.5 for value in values]
    return "".join(LEVELS[min(int(place * len(LEVELS)), len(LEVELS) - 1)] for place in places)


def _line(
    points: Sequence[Point], over: Point, between: Point, across: int, rows: int
) -> Iterator[tuple[int, int]]:
    """Yield the dots of the lines from each point to the next, as column and row from above."""
    last: Point | None = None
    for x, y in points:
        if not (math.isfinite(x) and math.isfinite(y)):
            last = None
            continue
        here = (_place(x, over, across * ACROSS), rows * DOWN - 1 - _place(y, between, rows * DOWN))
        before = here if last is None else last
        steps = int(max(abs(here[0] - before[0]), abs(here[1] - before[1]), 1))
        for step in range(steps + 1):
            yield (
                round(before[0] + (here[0] - before[0]) * step / steps),
                round(before[1] + (here[1] - before[1]) * step / steps),
            )
        last = here


def _place(value: float, bounds: Point, dots: int) -> int:
    """Return which of so many dots a value is at; a value alone is in the middle."""
    least, most = bounds
    part = (value - least) / (most - least) if most > least else 0.5
    return round(part * (dots - 1))


def _row(dots: set[tuple[int, int]], row: int, across: int) -> str:
    return "".join(
        chr(
            BRAILLE
            + sum(
                DOTS[down][right]
                for down in range(DOWN)
                for right in range(ACROSS)
                if (column * ACROSS + right, row * DOWN + down) in dots
            )
        )
        for column in range(across)
    ).rstrip(chr(BRAILLE))


def _bar(part: float, room: int) -> str:
    if not math.isfinite(part):
        return ""
    eighths = round(part * room * (len(EIGHTHS) - 1))
    whole, rest = divmod(eighths, len(EIGHTHS) - 1)
    return (EIGHTHS[-1] * whole + EIGHTHS[rest]).strip()


def _number(value: float) -> str:
    return f"{value:.4g}"

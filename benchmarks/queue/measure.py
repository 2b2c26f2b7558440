"""Two things measured in turn, so that what the machine does besides falls on both."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Compared:
    """The medians of two measurements, and the median and spread of their ratio, round by round."""

    what: str
    one: float
    other: float
    ratio: float
    low: float
    high: float
    target: str
    met: bool


def compared(
    what: str,
    one: Callable[[], float],
    other: Callable[[], float],
    *,
    rounds: int,
    target: str,
    meets: Callable[[float], bool],
) -> Compared:
    """Measure in turn and return one over the other; the first round only warms up."""
    pairs = [_pair(one, other, first=n % 2 == 0) for n in range(rounds + 1)][1:]
    ratios = sorted(a / b for a, b in pairs)
    ratio = median(ratios)
    return Compared(
        what=what,
        one=median(a for a, _ in pairs),
        other=median(b for _, b in pairs),
        ratio=ratio,
        low=ratios[len(ratios) // 4],
        high=ratios[-1 - len(ratios) // 4],
        target=target,
        met=meets(ratio),
    )


def _pair(
    one: Callable[[], float], other: Callable[[], float], *, first: bool
) -> tuple[float, float]:
    if first:
        a = one()
        return a, other()
    b = other()
    return one(), b

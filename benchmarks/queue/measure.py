"""Two things measured in turn, so that what the machine does besides falls on both."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

# Seconds for one row of a table, and its rounds at the least.
LONGEST_S, LEAST = 30.0, 5


@dataclass(frozen=True)
class Target:
    """What a ratio should be."""

    words: str
    met: Callable[[float], bool]


NONE = Target("", lambda _: True)


def at_least(least: float) -> Target:
    return Target(f"at least {least}", lambda ratio: ratio >= least)


def at_most(most: float) -> Target:
    return Target(f"at most {most}", lambda ratio: ratio <= most)


@dataclass(frozen=True)
class Compared:
    """The medians of two measurements, and the median and spread of their ratio, round by round."""

    what: str
    one: float
    other: float
    ratio: float
    low: float
    high: float
    rounds: int
    target: Target

    def line(self, other: str) -> str:
        """Return a row of the table; `other` names what it is compared with."""
        return (
            f"| {self.what} | {self.one:,.4g} | {other} {self.other:,.4g} | {self.ratio:.2f} "
            f"| {self.low:.2f} to {self.high:.2f} | {self.rounds} | {self.target.words} "
            f"| {'yes' if self.target.met(self.ratio) else 'NO'} |"
        )


def compared(
    what: str,
    one: Callable[[], float],
    other: Callable[[], float],
    *,
    rounds: int,
    target: Target = NONE,
) -> Compared:
    """Measure in turn and return one over the other; the first round only warms up.

    There are fewer rounds than asked for if they take too long.
    """
    began, pairs = perf_counter(), []
    for n in range(rounds + 1):
        pairs.append(_pair(one, other, first=n % 2 == 0))
        if len(pairs) > LEAST and perf_counter() - began > LONGEST_S:
            break
    pairs = pairs[1:]
    ratios = sorted(a / b for a, b in pairs)
    return Compared(
        what=what,
        one=median(a for a, _ in pairs),
        other=median(b for _, b in pairs),
        ratio=median(ratios),
        low=ratios[len(ratios) // 4],
        high=ratios[-1 - len(ratios) // 4],
        rounds=len(pairs),
        target=target,
    )


def rate(passing: Callable[[int, int], int], jobs: int, count: int) -> float:
    """Return the jobs per second of passing at least `jobs` jobs, `count` at a time."""
    began = perf_counter()
    return passing(jobs, count) / (perf_counter() - began)


def _pair(
    one: Callable[[], float], other: Callable[[], float], *, first: bool
) -> tuple[float, float]:
    if first:
        a = one()
        return a, other()
    b = other()
    return one(), b

"""The schedule of faults: a pure function of the seed and of the possible targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.dice import dice_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

# No fault before the first jobs are running.
QUIET_S = 3.0


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its relative weight, its targets, and how long it may last.

    One that comes every `every_s` seconds has no weight, and hits its targets in turn.
    """

    name: str
    weight: float
    targets: tuple[str, ...]
    shortest_s: float
    longest_s: float
    every_s: float = 0.0


@dataclass(frozen=True)
class Blow:
    """A fault that starts `at_s` seconds into the run, and is healed `lasts_s` later.

    `seed` is for the fault's own random choices.
    """

    at_s: float
    kind: str
    target: str
    lasts_s: float
    seed: int


def schedule(seed: int, seconds: float, gap_s: float, kinds: Sequence[Kind]) -> list[Blow]:
    """Return the faults of this many seconds, one every `gap_s` on average.

    Each kind comes once, in random order, before weights decide.
    """
    dice = dice_of(seed, "schedule")
    first = [kind for kind in kinds if kind.targets and not kind.every_s]
    dice.shuffle(first)
    blows: list[Blow] = []
    at_s = QUIET_S
    while first and at_s < seconds:
        chosen = first[len(blows)] if len(blows) < len(first) else _one_of(first, dice)
        lasts_s = round(dice.uniform(chosen.shortest_s, chosen.longest_s), 2)
        target = dice.choice(chosen.targets)
        blows.append(Blow(round(at_s, 2), chosen.name, target, lasts_s, dice.getrandbits(32)))
        at_s += dice.uniform(0.4, 1.6) * gap_s
    regular = (blow for kind in kinds if kind.every_s for blow in _each_time(kind, seconds, dice))
    return sorted([*blows, *regular], key=lambda blow: blow.at_s)


def _each_time(kind: Kind, seconds: float, dice: Random) -> Iterator[Blow]:
    times = int(seconds / kind.every_s) if kind.targets else 0
    for n in range(times):
        target = kind.targets[n % len(kind.targets)]
        at_s = (n + 0.5) * kind.every_s
        yield Blow(at_s, kind.name, target, kind.shortest_s, dice.getrandbits(32))


def _one_of(kinds: Sequence[Kind], dice: Random) -> Kind:
    return dice.choices(kinds, [kind.weight for kind in kinds])[0]

"""Shares of a batch by speed, so that the steps of unequal machines end together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from forge_schema.model.worker import DEVICES, Speed

LEAST = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a rank computes, in GFLOPS of fp32, and how that was measured; None if unknown."""

    speed: float | None = None
    method: str | None = None


def pace_of(speed: Speed | None, accelerator: str, cpus: float) -> Pace:
    """Return a rank's pace: of its GPU, or of the CPUs lent to it.

    It is unknown if that was not measured, and where Python alone measured it, which tells nothing
    about training.

    Args:
        speed: what its machine measured.
        accelerator: the device it computes on: `cuda`, `rocm`, `mps` or `cpu`.
        cpus: number of CPUs lent to it.
    """
    if speed is None or accelerator not in DEVICES:
        return Pace()
    rates: Mapping[str, float] = getattr(speed, accelerator)
    # What is not above zero was not measured, and other members would not accept it.
    if (rate := rates.get("fp32", 0)) <= 0:
        return Pace()
    rate = rate * cpus / max(speed.cpus, 1) if accelerator == "cpu" else rate
    return Pace(rate, speed.method)


def shares(speeds: Sequence[float | None]) -> list[float]:
    """Return each rank's share of the batch; they sum to 1.

    The shares are equal if a speed is unknown. The speeds must be of one method and type of
    number, since others are not comparable.
    """
    known = _known(speeds)
    whole = sum(known)
    return [float(speed / whole) for speed in known]


def batches(
    whole: int, speeds: Sequence[float | None], most: Sequence[int | None] | None = None
) -> list[int]:
    """Return each rank's batch, which sum to `whole`: by speed, rounded by largest remainder.

    Each is at least 1. A faster rank with the same limit never gets less than a slower one.

    Args:
        whole: the global batch, in samples.
        speeds: as for `shares`.
        most: how many samples fit into each rank's memory; None means any number.

    Raises:
        ValueError: the batch is smaller than the number of ranks, or larger than their memory.
    """
    tops = [whole if top is None else min(top, whole) for top in most or [None] * len(speeds)]
    if len(tops) != len(speeds):
        raise ValueError(f"{len(speeds)} speeds, but {len(tops)} limits")
    if min(tops, default=0) < LEAST or not len(tops) <= whole <= sum(tops):
        raise ValueError(
            f"a batch of {whole} cannot be split into {len(tops)} of at least 1 and at most {tops}"
        )
    known = _known(speeds)
    exact = _within(whole, known, tops)
    made = [int(part) for part in exact]
    by_remainder = sorted(
        range(len(made)), key=lambda rank: (exact[rank] - made[rank], known[rank]), reverse=True
    )
    for rank in by_remainder[: whole - sum(made)]:
        made[rank] += 1
    return made


def _known(speeds: Sequence[float | None]) -> list[Fraction]:
    usable = [speed for speed in speeds if speed is not None and isfinite(speed) and speed > 0]
    if len(usable) < len(speeds):
        return [Fraction(1)] * len(speeds)
    return [Fraction(speed) for speed in usable]


def _within(whole: int, speeds: list[Fraction], tops: list[int]) -> list[Fraction]:
    """Split in proportion to the speeds, but within the limits.

    What limits take away or add is shared by the others, in proportion again: the ranks at one
    kind of limit keep it, whichever kind moves more, and the rest is split anew. CSS resolves
    flexible lengths in this way (https://www.w3.org/TR/css-flexbox-1/#resolve-flexible-lengths).
    """
    fixed: dict[int, Fraction] = {}
    while True:
        free = [rank for rank in range(len(speeds)) if rank not in fixed]
        left = whole - sum(fixed.values())
        pace = left / sum((speeds[rank] for rank in free), Fraction(0)) if free else Fraction(0)
        wanted = {rank: pace * speeds[rank] for rank in free}
        clamped = {
            rank: min(max(part, Fraction(LEAST)), Fraction(tops[rank]))
            for rank, part in wanted.items()
        }
        moved = sum(clamped.values()) - sum(wanted.values())
        if moved == 0:
            found = fixed | clamped
            return [found[rank] for rank in range(len(speeds))]
        fixed |= {rank: part for rank, part in clamped.items() if (part - wanted[rank]) * moved > 0}

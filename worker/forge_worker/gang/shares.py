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


def batches(speeds: Sequence[float | None], tops: Sequence[int]) -> list[int]:
    """Return each rank's batch in proportion to its speed, as large as fits into all memories.

    Each is at least 1.

    Args:
        speeds: as for `shares`.
        tops: how many samples each rank's memory holds, at least 1.
    """
    known = _known(speeds)
    per_speed = min(
        (top / speed for top, speed in zip(tops, known, strict=True)), default=Fraction(0)
    )
    return [max(LEAST, int(speed * per_speed)) for speed in known]


def _known(speeds: Sequence[float | None]) -> list[Fraction]:
    usable = [speed for speed in speeds if speed is not None and isfinite(speed) and speed > 0]
    if len(usable) < len(speeds):
        return [Fraction(1)] * len(speeds)
    return [Fraction(speed) for speed in usable]

"""Comparing the points of benchmarks: mean, median, spread, and the ratio to a baseline."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from forge_schema.model.fields import NOT_FINITE
from forge_schema.model.results import NUMBERS, SPENT, SweepPoint, measured, number_of

from forge_client.errors import ClientError

# Before the keys of a result and the names of metrics, as in the columns of runs.
RESULT, METRICS = "result.", "metrics."
LOSS = re.compile(r"(?i)(?<![a-z])loss(?![a-z])")
HELD_OUT = re.compile(r"(?i)(?<![a-z])(val|valid|validation|eval)")
# The maximum number of existing names to list.
SHOWN = 30


@dataclass(frozen=True)
class PointGroup:
    """The jobs with the same values of the grouping parameters.

    `ratio` is to the baseline's mean, and `difference` from it. `spread` is the sample's standard
    deviation, None for a single value.
    """

    sweep: str
    by: Mapping[str, Any]
    count: int
    mean: float
    median: float
    spread: float | None
    ratio: float | None
    difference: float | None
    is_baseline: bool


@dataclass(frozen=True)
class SweepComparison:
    """The groups in order, the number of jobs without the metric, and the other metrics."""

    groups: list[PointGroup]
    without: int
    others: list[str]

    @property
    def baseline(self) -> PointGroup | None:
        """The group that all others are compared with; None if each has one of its own."""
        its = [group for group in self.groups if group.is_baseline]
        return its[0] if len(its) == 1 else None


def compare(
    sweeps: Mapping[str, Iterable[SweepPoint]], metric: str, by: Sequence[str] | None = None
) -> SweepComparison:
    """Return the statistics of a metric over groups of successful jobs.

    Args:
        sweeps: the points by sweep name. With one sweep, the baseline is its first group; with
            several, it is the same group in the first sweep.
        metric: `seconds`, `gpu_seconds`, `energy_j`, a key of the results, in which dots lead into
            objects, or a metric, as `SweepPoint.value`.
        by: the parameters to group by; None means all except `repeat` and `trial`.

    Raises:
        ClientError: no job has the parameter, or no job reports the metric as a number.
    """
    sweeps = {sweep: list(points) for sweep, points in sweeps.items()}
    _check([point for points in sweeps.values() for point in points], metric, by or ())
    values_at: dict[tuple[str, str], list[float]] = {}
    shown: dict[tuple[str, str], Mapping[str, Any]] = {}
    without = 0
    for sweep, points in sweeps.items():
        for point in points:
            value = number_of(point.value(metric))
            if point.state != "succeeded" or value is None:
                without += 1
                continue
            chosen = _chosen(point.parameters, by)
            place = sweep, json.dumps(chosen)
            values_at.setdefault(place, []).append(value)
            shown.setdefault(place, chosen)
    means = {place: fmean(values) for place, values in values_at.items()}
    first = next(iter(sweeps), "")
    bases = {place: next(iter(means)) if len(sweeps) == 1 else (first, place[1]) for place in means}
    groups = [
        PointGroup(
            sweep=place[0],
            by=shown[place],
            count=len(values),
            mean=means[place],
            median=median(values),
            spread=stdev(values) if len(values) > 1 else None,
            **_against(means[place], means.get(bases[place])),
            is_baseline=place == bases[place],
        )
        for place, values in values_at.items()
    ]
    written = _numbers([point for points in sweeps.values() for point in points])
    # Only the first few are shown, so the jobs' own come before the last of the others.
    numbers = (*SPENT[:3], *written, *SPENT[3:])
    own = {metric, f"{RESULT}{metric}", f"{METRICS}{metric}"}
    others = [name for name in numbers if name not in own]
    return SweepComparison(groups, without, others)


def usual_metric(sweeps: Mapping[str, Sequence[SweepPoint]]) -> str:
    """Return the loss that the jobs of sweeps report, best of what they held out; else seconds."""
    written = _numbers([point for points in sweeps.values() for point in points])
    names = [name.removeprefix(RESULT).removeprefix(METRICS) for name in written]
    losses = [name for name in names if LOSS.search(name)]
    return min(losses, key=lambda name: not HELD_OUT.search(name), default=SPENT[0])


def _check(points: Sequence[SweepPoint], metric: str, by: Sequence[str]) -> None:
    parameters = dict.fromkeys(name for point in points for name in point.parameters)
    for name in by:
        if points and name not in parameters:
            raise _unknown(f"no job has a parameter {name}", parameters)
    numbers = _numbers(points)
    values = [each.value(metric) for each in points]
    is_number = any(value in NOT_FINITE or number_of(value) is not None for value in values)
    if numbers and metric not in SPENT and not is_number:
        raise _unknown(f"no job reports a number named {metric}", (*numbers, *SPENT))


def _numbers(points: Sequence[SweepPoint]) -> dict[str, None]:
    """Return the paths of the numbers in the results, and the metrics."""
    results = dict.fromkeys(
        path
        for point in points
        for path in _paths(point.result, RESULT)
        if number_of(point.value(path)) is not None
    )
    return results | {f"{METRICS}{key}": None for key in measured(points)}


def _paths(result: Any, before: str) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    for key, value in result.items() if isinstance(result, Mapping) else ():
        yield f"{before}{key}"
        yield from _paths(value, f"{before}{key}.")


def _unknown(message: str, known: Iterable[str]) -> ClientError:
    listed = list(known)
    more = f", and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ClientError(
        message,
        hint=f"choose one of {', '.join(listed[:SHOWN])}{more}" if listed else "no job reports any",
        code="name_unknown",
    )


def _chosen(parameters: Mapping[str, Any], by: Sequence[str] | None) -> dict[str, Any]:
    names = [name for name in parameters if name not in NUMBERS] if by is None else by
    return {name: parameters.get(name) for name in names}


def _against(mean: float, baseline: float | None) -> dict[str, float | None]:
    return {
        "ratio": mean / baseline if baseline else None,
        "difference": None if baseline is None else mean - baseline,
    }

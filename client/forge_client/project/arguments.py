"""The arguments of a function, as the parameters of its job."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite
from numbers import Integral, Rational, Real
from re import ASCII, fullmatch
from typing import Any

from forge_client.project.matrix import Scalar

MOST_PARAMETERS = 50
# Longer ones are data, not what runs are compared by.
MOST_CHARACTERS = 100
MOST_INTEGER = 2**63


def parameters(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    own: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Return the job's own parameters and those of a call: numbers, short texts and booleans.

    Defaults are among them, so that calls with and without an argument compare.
    """
    given = ((k, v) for k, v in _scalars(function, args, kwargs) if k not in own)
    return {**own, **dict(islice(given, max(MOST_PARAMETERS - len(own), 0)))}


def _scalars(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Scalar]]:
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        gathered = signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD
        for key, each in value.items() if gathered else [(name, value)]:
            scalar = _scalar(each)
            if scalar is not None and fullmatch(r"[A-Za-z_]\w{0,63}", key, ASCII):
                yield key, scalar


def _scalar(value: object) -> Scalar | None:
    """Return a value, also a number of numpy's, as JSON has it; None if it is no short scalar."""
    match value:
        case bool():
            return value
        case str():
            fits = len(value) <= MOST_CHARACTERS and value.isprintable()
            return str.__str__(value) if fits else None
        case Integral():
            number = int(value)
            return number if abs(number) < MOST_INTEGER else None
        case Real() if not isinstance(value, Rational) and isfinite(value):
            return float(value)
    return None

"""The parameters by which the jobs of one call are compared."""

from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from numbers import Integral, Rational, Real

from forge_client.project.matrix import NAME, Scalar

MOST = 50
# Longer ones are data, not what runs are compared by.
MOST_CHARACTERS = 100
MOST_INTEGER = 2**63


def compared_by(
    given: Iterable[tuple[str, object]], *, own: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the job's own parameters and what it was given: numbers, short texts and booleans."""
    scalars = ((name, scalar) for name, value in given if (scalar := _scalar(value)) is not None)
    named = (pair for pair in scalars if pair[0] not in own and NAME.fullmatch(str(pair[0])))
    return {**own, **dict(islice(named, max(MOST - len(own), 0)))}


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

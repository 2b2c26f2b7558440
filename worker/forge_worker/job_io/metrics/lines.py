"""What one line of metrics says."""

import json
from contextlib import suppress
from math import isfinite
from typing import Any

from forge_schema.model.fields import storable
from forge_schema.model.results import PROGRESS

LINE_BYTES = 64 << 10


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None.

    NaN and infinities, which JSON does not have, become strings. In text, a replacement character
    stands for a NUL and for half a surrogate pair.
    """
    if len(line) > LINE_BYTES:
        return None
    try:
        values = json.loads(storable(line), parse_constant=str, parse_float=_finite)
        # Python also reads half a surrogate pair as UTF-8, but the database refuses it.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def step_of(values: dict[str, Any]) -> float | None:
    """Return the step in a line, or None."""
    return _number(values.get("step"))


def progress_of(values: dict[str, Any]) -> float | None:
    """Return the share done, 0 to 1, from `progress`, or from `step` and `total`."""
    step, total = step_of(values), _number(values.get("total"))
    share = _number(values.get("progress"))
    if share is None and step is not None and total:
        share = step / total
    return None if share is None else min(max(share, 0.0), 1.0)


def measured(values: dict[str, Any]) -> set[str]:
    """Return the names of the metrics in a line."""
    return {
        name
        for name, value in values.items()
        if name not in PROGRESS and _number(value) is not None
    }


def _finite(digits: str) -> float | str:
    # 1e999 parses as infinity, which Postgres's JSON lacks: it is stored as a string.
    if isfinite(value := float(digits)):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        return float(value)
    return None

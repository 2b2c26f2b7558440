"""The rows of a report as a server sends them, with days and moments read again."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

MOMENTS = ("at", "since")


def typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its times as times: `day`, `at`, `since` and what ends in `_at`."""
    return {name: _read(name, value) for name, value in row.items()}


def _read(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        if name == "day":
            return date.fromisoformat(value)
        if name in MOMENTS or name.endswith("_at"):
            return datetime.fromisoformat(value)
    except ValueError:
        return value
    return value

"""Durations and sizes as people write them: `90s`, `1h30m`, `512MB`, `2G`."""

import re
from typing import Annotated

from pydantic import BeforeValidator

MIB = 1 << 20
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
# As for docker run: every unit is a power of 1024, whichever way it is spelled.
BYTES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])")
_DURATION = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


def seconds(text: object) -> float:
    """Return a duration in seconds; a bare number is one already.

    Raises:
        ValueError: it is not a duration.
    """
    if (number := _number(text)) is not None:
        return number
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write 90s, 30m or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, unit in _PART.findall(text))


def size(text: object) -> int:
    """Return a size in bytes; K, M, G and T are powers of 1024.

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 512MB or 2GB")
    return int(float(match[1]) * 1024 ** BYTES[match[2].upper()])


def room(text: object) -> int:
    """Return a size of memory or disk in bytes: one below a MiB has lost its unit.

    Raises:
        ValueError: it is not a size, or too small to be meant.
    """
    count = size(text)
    if 0 < count < MIB:
        raise ValueError(f"{text!r} is {count} bytes; write 512MB or 2GB")
    return count


def _number(value: object) -> float | None:
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def readable_size(count: float) -> str:
    """Return a size in bytes as people read it."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:  # noqa: PLR2004 - what these units mean
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"  # noqa: PLR2004 - two digits say enough
        count /= 1024
    return f"{count:.1f} TB"


def readable_seconds(count: float) -> str:
    """Return a duration in seconds as people read it, by its two largest units."""
    whole = max(0, round(count))
    if count < 10:  # noqa: PLR2004 - where tenths matter
        return f"{max(0.0, count):.1f}s"
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole % 60, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return "".join(shown[:2])


def spoken_seconds(count: float) -> str:
    """Return a duration in seconds as a sentence has it, by its largest unit that says enough."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if count >= 2 * unit:
            return f"{count / unit:.0f} {name}"
    return f"{count:.1f} s" if count < 10 else f"{count:.0f} s"  # noqa: PLR2004 - where tenths matter


Duration = Annotated[float, BeforeValidator(seconds)]
"""Seconds, from a number or from text such as `1h30m`."""

Room = Annotated[int, BeforeValidator(room)]
"""Bytes of memory or disk, from text such as `512MB`."""

Size = Annotated[int, BeforeValidator(size)]
"""Bytes, from text such as `512MB`."""

"""Parse and format durations, times and sizes: `90s`, `1h30m`, `yesterday`, `512MiB`, `2G`."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo

MIB = 1 << 20
MINUTE, HOUR, DAY = 60, 3600, 86_400
SECONDS = {"ms": 0.001, "s": 1, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
# As in docker run, every unit is a power of 1024, however it is spelled.
BYTES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TENTHS_BELOW = 10
WHOLE_FROM = 100
THOUSAND = 1000
DAYS_AGO = {"today": 0, "yesterday": 1}
MOMENTS_HINT = "write 90m, 12h, 7d, yesterday, or a day such as 2026-11-01"

PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])")
_DURATION = re.compile(rf"\s*(?:{PART.pattern}\s*)+")
_NUMBER = re.compile(r"\s*\d+(\.\d+)?\s*")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


def seconds(text: object) -> float:
    """Return a duration, often text, in seconds. A bare number is in seconds.

    Raises:
        ValueError: it is not a duration.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    if isinstance(text, timedelta):
        return text.total_seconds()
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        return float(text)
    return span(text)


def span(text: object) -> float:
    """Parse a duration with units into seconds.

    Raises:
        ValueError: it is not a duration, or a number without a unit.
    """
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write 90s, 30m or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))


def moment(text: str, now: datetime, zone: tzinfo | None = UTC) -> datetime:
    """Return the time that an age, a day or a time names, in UTC.

    Days, and times without a zone, are those of `zone`: None is this machine's.

    Raises:
        ValueError: it is none of them.
    """
    word = text.strip()
    try:
        when = _moment(word, now, now.astimezone(zone).date())
        whole = when.replace(tzinfo=zone) if when.tzinfo is None and zone is not None else when
        return whole.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is neither an age nor a time") from None


def _moment(word: str, now: datetime, today: date) -> datetime:
    if word in DAYS_AGO:
        return datetime.combine(today - timedelta(days=DAYS_AGO[word]), time())
    if "-" in word[1:]:
        return datetime.fromisoformat(word)
    return now - timedelta(seconds=span(word))


def size(text: object) -> int:
    """Parse a size into bytes; K, M, G and T are powers of 1024.

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 512MiB or 2GiB")
    return int(float(match[1]) * 1024 ** BYTES[match[2].upper()])


def capacity(text: object) -> int:
    """Parse a size of memory or disk into bytes. Less than a MiB must be a missing unit.

    Raises:
        ValueError: it is not a size, or is too small to be intended.
    """
    count = size(text)
    if 0 < count < MIB:
        raise ValueError(f"{text!r} is {counted(count, 'byte')}; write 512MiB or 2GiB")
    return count


def size_text(count: float) -> str:
    """Format a number of bytes in a suitable unit: `1.5 KiB`."""
    step = 0
    while abs(count) >= 1024 and step < len(UNITS) - 1:  # noqa: PLR2004 - the factor between the units
        count, step = count / 1024, step + 1
    digits = 0 if abs(count) >= WHOLE_FROM else 1
    return f"{_short(count, digits)} {UNITS[step]}"


def duration_text(count: float) -> str:
    """Format a duration in seconds with its two largest units: `1 h 30 min`."""
    return " ".join(f"{number} {unit}" for number, unit in duration_parts(count))


def span_text(count: float) -> str:
    """Format a duration within a sentence: `7 days`, `90 min`."""
    days, rest = divmod(round(count), DAY)
    return counted(days, "day") if days and not rest else duration_text(count)


def duration_parts(count: float) -> list[tuple[str, str]]:
    """Return the numbers and units (`d`, `h`, `min`, `s`) of a formatted duration."""
    if count < TENTHS_BELOW:
        return [(_short(max(0.0, count), 1), "s")]
    whole = round(count)
    parts = [(whole // DAY, "d"), (whole // HOUR % 24, "h"), (whole // MINUTE % 60, "min")]
    parts.append((whole % MINUTE, "s"))
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return [(str(number), unit) for number, unit in parts[first : first + 2] if number]


def _short(number: float, digits: int) -> str:
    text = f"{number:.{digits}f}"
    return text.removesuffix(".0") if digits else text


def counted(count: float, noun: str, many: str = "") -> str:
    """Format a count with its noun: `1 file`, `2 files`, `0.5 CPUs`."""
    number = count if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else many or f'{noun}s'}"


def counted_range(least: int, most: int, noun: str) -> str:
    """Format a range with its noun: `2 to 8 machines`, or `2 machines`."""
    return counted(least, noun) if most == least else f"{least} to {counted(most, noun)}"


def numbered(job_id: int, task: int | None) -> str:
    """Return a job's id, and the number of one of its tasks."""
    return str(job_id) if task is None else f"{job_id}.{task}"


def names_text(names: Sequence[str], most: int = 3, *, last: str = "and") -> str:
    """Format names: `a, b and c`, or of more than `most`, `a, b, c and 5 more`."""
    shown = [*names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return f" {last} ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def flops_text(gflops: float) -> str:
    """Format a rate of operations, given in 10⁹ per second: `37.8 GFLOPS`, `495 TFLOPS`."""
    thousands = gflops >= THOUSAND
    return f"{gflops / THOUSAND if thousands else gflops:.3g} {'TFLOPS' if thousands else 'GFLOPS'}"


def exit_in_words(code: int | None) -> str:
    """Return how a program ended; without a code, it never began."""
    return "preparation failed" if code is None else f"exit code {code}"

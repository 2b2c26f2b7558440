"""Format numbers, durations and times for pages."""

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import DAY, HOUR, MIB, MINUTE, duration_parts, size_text
from forge_schema.model.states import PROGRESS, in_words, reason_in_words
from forge_schema.model.worker import speed_text
from markupsafe import Markup

from forge_functions.dashboard.words import reader, t

NONE = "\u2013"
# A row may be slightly newer than the time from which its page computes ages.
JUST_S = 5
MINUS, BY = "\u2212", "\u00d7"
# Characters of a detail in a list, and of the title that has more of it.
SUMMARY, TITLE = 100, 2000
FRAME = re.compile(r"(?:^|\s)={3,}(?=\s|$)")
TWICE = re.compile(r"failed (?:to start )?the same way twice: |(?<= tasks failed) as before(?=: )")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# From so many times as much on, a factor is easier to read than a percentage.
TIMES, MOST_WRITTEN = 10, 1e6
WHOLE_PERCENT = 1000
# Metrics that only count.
COUNTERS = PROGRESS | {"epoch"}
# How some words of a report's columns read; units are in the heading or in the value.
SHORT = {
    **{word: word.upper() for word in ("gpu", "cpu", "vram", "id", "sla")},
    "gpus": "GPUs",
    "cpus": "CPUs",
    "kwh": "kWh",
    "there": "available",
    "leased": "assigned",
    "again": "repeated",
    "1m": "within 1 min",
    "5m": "within 5 min",
    "60m": "within 1 h",
}
UNITS = {"j": ", J", "s": "", "mb": "", "at": ""}
SHARES = {"goodput", "progress"}
# What a job requests if it says nothing.
UNSAID = {"cpus", "memory_mb", "vram_mb"}
DURATIONS = {"d": "{n} d", "h": "{n} h", "min": "{n} min", "s": "{n} s"}


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with separated thousands."""
    return NONE if value is None else f"{value:,.{digits}f}"


def fault_of(error: ForgeError) -> str:
    """Format an error for the form that it came from: what is wrong, and what to do."""
    return " ".join(sentence(text) for text in (error.message, error.hint) if text)


def sentence(text: str) -> str:
    """Return a text with a capital, unless it begins with a quotation or a command."""
    return text if text.startswith("forge ") else text[:1].upper() + text[1:]


def percent(value: float | None) -> str:
    """Format a fraction as a percentage."""
    return NONE if value is None else f"{100 * value:.0f}\u202f%"


def sorted_word(column: str, sort: str | None, *, down: bool) -> str:
    """Return how the rows are sorted by a column, in the words of a table's heading."""
    if sort != column:
        return "none"
    return "descending" if down else "ascending"


def change(value: object, base: object) -> str | None:
    """Format by how much a number differs from another one; None if that says nothing."""
    if not isinstance(value, int | float) or not isinstance(base, int | float):
        return None
    if isinstance(value, bool) or not base or value == base:
        return None
    factor = value / base
    if isfinite(factor) and factor >= TIMES:
        return (f"{factor:,.0f}" if factor < MOST_WRITTEN else f"{factor:.0e}") + BY
    part = 100 * (value - base) / abs(base)
    digits = ",.0f" if abs(part) >= WHOLE_PERCENT else ".3g"
    return f"{part:+{digits}}\u202f%".replace("-", MINUS) if isfinite(part) else None


def money(value: float | None) -> str:
    """Format an amount in the currency of the workers' prices."""
    if value is None:
        return NONE
    return f"{value:,.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:,.4f}"  # noqa: PLR2004 - a cent


def size(value: float | None) -> str:
    """Format a number of bytes in a suitable unit."""
    if value is None:
        return NONE
    return size_text(value)


def duration(value: float | timedelta | None) -> str:
    """Format seconds with at most two units."""
    if value is None:
        return NONE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    parts = duration_parts(abs(seconds))
    text = " ".join(t(DURATIONS[unit], n=number) for number, unit in parts)
    return f"{MINUS}{text}" if seconds < 0 else text


def roughly(seconds: float) -> str:
    """Format seconds with one unit."""
    return duration(_coarse(seconds))


def moment(value: datetime | None) -> Markup | str:
    """Format a time as an age with the exact time in its title, or exactly for who wishes that."""
    if value is None or reader().times != "ages":
        return exact(value)
    at = value.astimezone(UTC)
    title = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), title, relative(at)
    )


def exact(value: datetime | None) -> Markup | str:
    """Format a time to the second, in UTC."""
    if value is None:
        return NONE
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC"
    )


def day(value: datetime) -> str:
    """Format the day of a time, in UTC."""
    return f"{value.astimezone(UTC):%Y-%m-%d}"


def relative(at: datetime) -> str:
    """Format how long ago a time was, or how far in the future it is."""
    seconds = (reader().now - at).total_seconds()
    if -JUST_S < seconds < 1:
        return t("now")
    text = roughly(abs(seconds))
    return t("{duration} ago", duration=text) if seconds > 0 else t("in {duration}", duration=text)


def _coarse(seconds: float) -> float:
    # One unit is enough for an age.
    unit = next((u for u in (DAY, HOUR, MINUTE) if seconds >= u), 1)
    return seconds // unit * unit


def cell(value: object) -> Markup | str:
    """Format any value of a report's column."""
    if value is None or isinstance(value, datetime):
        return exact(value)
    if isinstance(value, float | Decimal):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def brief(value: object) -> Markup | str:
    """Format what a run measured or was given in a few characters."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return cell(value)


def heading(column: str) -> str:
    """Return the heading of a report's column: `Waited` of `waited_s`."""
    name, _, last = column.rpartition("_")
    known = f"{name}{UNITS[last]}" if name and last in UNITS else column
    words = [SHORT.get(word, word) for word in re.split(r"(\W|_)", known)]
    said = "".join(words).replace("_", " ")
    return said[:1].upper() + said[1:]


def is_duration(column: str) -> bool:
    """Tell whether a report's column is one of seconds."""
    return column.endswith(("_s", "seconds"))


def reported(value: object, column: str) -> Markup | str:
    """Format a value of a report's column, by what its name says that it is."""
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    if isinstance(value, int | float | Decimal):
        return _measured(value, column)
    if isinstance(value, str):
        return reason(value) if column == "reason" else clipped(value)
    if isinstance(value, dict):
        return clipped(", ".join(f"{key}={brief(one)}" for key, one in value.items())) or NONE
    return clipped(str(cell(value))) if isinstance(value, list) else cell(value)


def _measured(value: float | Decimal, column: str) -> Markup | str:
    if not value and column in UNSAID:
        return NONE if column == "vram_mb" else t("a share")
    if is_duration(column):
        return duration(float(value))
    if column.endswith("_mb"):
        return size(float(value) * MIB)
    return percent(float(value)) if "share" in column or column in SHARES else cell(value)


def clipped(text: str) -> Markup | str:
    """Return the first line of a text, cut, with all of it in its title."""
    short = summary(text)
    return (
        short if short == text else Markup('<span title="{}">{}</span>').format(text[:TITLE], short)
    )


def found(value: object) -> str:
    """Format a value of a result without values of its own, as `forge result` prints it."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def unframed(line: str) -> str:
    """Return a line without the row of `=` on each side with which some programs print it."""
    return FRAME.sub("", line).strip()


def cause(detail: str | None) -> str:
    """Return the first line of a detail, without what may differ each time: its numbers."""
    return NUMBER.sub("0", unframed(untold((detail or "").split("\n", 1)[0])))


def untold(detail: str) -> str:
    """Return a detail without the words that it was the same twice."""
    return TWICE.sub("", detail).strip()


def summary(detail: str | None) -> str:
    """Return the first line of a detail, cut; the last lines of the output follow it."""
    line = unframed((detail or "").split("\n", 1)[0])
    return line if len(line) <= SUMMARY else f"{line[: SUMMARY - 1]}…"


def reason(name: str) -> str:
    """Format the reason for an end."""
    return t(reason_in_words(name))


def coded(text: str) -> Markup:
    """Format a sentence with commands between backticks."""
    forms = (Markup("{}"), Markup("<code>{}</code>"))
    parts = enumerate(text.split("`"))
    return Markup("").join(forms[number % 2].format(part) for number, part in parts)


FILTERS = {
    "coded": coded,
    "brief": brief,
    "change": change,
    "cell": cell,
    "reported": reported,
    "sentence": sentence,
    "number": number,
    "percent": percent,
    "money": money,
    "bytes": size,
    "speed": speed_text,
    "duration": duration,
    "moment": moment,
    "roughly": roughly,
    "exact": exact,
    "day": day,
    "found": found,
    "heading": heading,
    "summary": summary,
    "unframed": unframed,
    "untold": untold,
    "word": in_words,
    "reason": reason,
}

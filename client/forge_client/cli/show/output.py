"""The command's output on stdout: a table for people, or JSON for programs."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from forge_schema.model.quantities import duration_text

from forge_client.cli.show import narration

Column = tuple[str, Callable[[Any], object]]
"""A column's title, and what it shows of a row."""

Cell = tuple[str, str]
"""A text and its style."""

# Of a value that a job reported, in a column.
LONGEST = 60
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
STATE_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "failed": "red",
    "fail": "red",
    "cancelled": "yellow",
    "warn": "yellow",
    "ok": "green",
    "offline": "red",
    "constrained": "yellow",
}


class Format(StrEnum):
    """How to print data."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def show(
    rows: Iterable[Any],
    columns: Sequence[Column],
    form: Format,
    drop: Sequence[str] = (),
    *,
    nothing: str = "",
) -> None:
    """Print rows: records or mappings.

    Args:
        rows: the rows.
        columns: the columns of a table.
        form: how to print them.
        drop: the titles of columns to leave out of a table on a narrow terminal, in this order.
        nothing: what to say on stderr in place of a table without rows.
    """
    match form:
        case Format.TABLE:
            listed = list(rows)
            if listed:
                _print(table(listed, columns, width(), drop), gap=1)
            elif nothing:
                narration.say(nothing)
        case Format.JSON:
            _write(json.dumps([plain(row) for row in rows], indent=2))
        case Format.JSONL:
            for row in rows:
                _write(json.dumps(plain(row)))


def dropped(rows: Sequence[Any], columns: Sequence[Column], drop: Sequence[str]) -> list[str]:
    """Return the titles of the columns that `show` leaves out here."""
    kept = {title for title, _ in table(rows, columns, width(), drop)[0]}
    return [title for title, _ in columns if title not in kept]


def show_one(value: object, form: Format, as_table: Callable[[], None]) -> None:
    """Print one thing: as JSON, or as a table by calling `as_table`."""
    if form is Format.TABLE:
        as_table()
    else:
        _write(json.dumps(plain(value), indent=2 if form is Format.JSON else None))


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values in two columns, omitting empty values."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", {}, [])]
    _print([[(name, "bold"), _cell(value)] for name, value in shown], gap=2)


def blank() -> None:
    """Print an empty line."""
    _write("")


def width() -> int:
    """Return the number of columns for a table; what is not a terminal has room for all."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


def coloured() -> bool:
    """Tell whether stdout may have colours: on a terminal, unless NO_COLOR is set."""
    return narration.coloured(sys.stdout)


def ago(moment: datetime | None) -> str:
    """Return how long ago a time was, or how far ahead it is."""
    if moment is None:
        return ""
    passed = (datetime.now(UTC) - moment).total_seconds()
    return f"in {duration_text(-passed)}" if passed < -1 else f"{duration_text(passed)} ago"


def inline(value: object) -> str:
    """Return a value on one line, with lists and mappings in readable form."""
    match value:
        case None:
            return ""
        case Mapping():
            shown = ((name, inline(inner)) for name, inner in value.items())
            return ", ".join(f"{name}={text}" for name, text in shown if text)
        case list() | tuple():
            return shlex.join(str(inner) for inner in value)
        case float():
            return f"{value:g}"
        case datetime():
            return value.astimezone().isoformat(sep=" ", timespec="seconds")
        case _:
            return str(value).lower() if isinstance(value, bool) else str(value)


def brief(value: object, most: int = LONGEST) -> str:
    """Return a value on one line; on a terminal only its beginning, if it is long."""
    text = " ".join(inline(value).split())
    return shortened(text, most) if sys.stdout.isatty() else text


def shortened(text: str, most: int) -> str:
    """Return a text, or only its beginning if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Convert a value to JSON types."""
    # A pydantic model; importing its class would take longer than most commands.
    if fields := getattr(type(value), "model_fields", None):
        shown = {name for name, field in fields.items() if field.repr}
        model: Any = value
        return model.model_dump(mode="json", include=shown)
    # Of a record that was read without it.
    if as_json := getattr(value, "as_json", None):
        value = as_json()
    match value:
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case datetime() | date():
            return value.isoformat()
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def table(
    rows: Sequence[Any], columns: Sequence[Column], width: int, drop: Sequence[str] = ()
) -> list[list[Cell]]:
    """Return a title row and rows, without the first columns to drop if the width is too small."""
    cells = [(title, [_in_line(_cell(read(row))) for row in rows]) for title, read in columns]
    kept = _fitting(cells, width, drop)
    titles = [(title, "bold") for title, _ in kept]
    return [titles, *(list(row) for row in zip(*(texts for _, texts in kept), strict=True))]


Cells = tuple[str, list[Cell]]


def _fitting(cells: list[Cells], width: int, drop: Sequence[str]) -> list[Cells]:
    # Empty ones say nothing, so they go first.
    empty = [title for title, texts in cells if title in drop and not any(t for t, _ in texts)]
    for title in (*empty, *drop):
        if sum(_width([(name, ""), *texts]) + 1 for name, texts in cells) - 1 <= width:
            break
        cells = [cell for cell in cells if cell[0] != title]
    return cells


def _width(column: Iterable[Cell]) -> int:
    return max(narration.width(line) for text, _ in column for line in text.split("\n"))


def _print(rows: list[list[Cell]], gap: int) -> None:
    widths = [_width(column) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + gap * (len(widths) - 1) > width():
        # It takes a while to import.
        from forge_client.cli.show import live  # noqa: PLC0415

        live.console().print(live.grid(rows, gap))
        return
    for row in rows:
        for line in _lines(row, widths, gap):
            _write(line)


def _lines(row: list[Cell], widths: list[int], gap: int) -> Iterable[str]:
    for texts in zip_longest(*(text.split("\n") for text, _ in row), fillvalue=""):
        parts = [
            narration.styled(text, style if text else "", sys.stdout)
            + " " * (wide - narration.width(text))
            for text, (_, style), wide in zip(texts, row, widths, strict=True)
        ]
        yield (" " * gap).join(parts).rstrip()


def in_a_line(name: str) -> str:
    """Return a name of somebody else without the line breaks that would look like other rows."""
    return "�".join(name.splitlines())


def _cell(value: object) -> Cell:
    # Text from other users must not send control codes to this terminal.
    text = CONTROLS.sub("�", "" if value is None else str(value))
    return text.expandtabs(), STATE_STYLES.get(text, "")


def _in_line(cell: Cell) -> Cell:
    """Return a cell of a row, which a name with a line break would cut in two."""
    text, style = cell
    return text.replace("\n", "�"), style


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")

"""Rows as CSV files and columns of numbers, the same from the command as from the dashboard."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, TextIO

from forge_schema.model.fields import NOT_FINITE
from forge_schema.model.results import as_numbers

# A spreadsheet takes a text that begins with these for a formula; users choose the texts.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def names_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of rows, in the order in which they come.

    Without `result` if no row has a value there and its keys are columns, such as `result.x`.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    spread = {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}
    filled = {name for row in rows for name in spread & row.keys() if row[name] is not None}
    return [name for name in names if name not in spread or name in filled]


def write_csv(rows: Iterable[Mapping[str, Any]], names: Sequence[str], to: TextIO) -> None:
    """Write a header and the rows as RFC 4180; times are ISO 8601, lists and objects are JSON.

    Text that a spreadsheet would take for a formula gets a leading apostrophe.
    """
    writer = csv.writer(to, lineterminator="\r\n")
    if names:
        writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)


def _cell(value: object) -> object:
    match value:
        case str():
            is_formula = value.startswith(FORMULA) and value not in NOT_FINITE
            return f"'{value}" if is_formula else value
        case datetime() | date():
            return value.isoformat()
        case Mapping() | list() | tuple():
            return json.dumps(value, default=str)
        case _:
            return value


MOST = 2**63


def numeric(column: list[Any]) -> list[Any]:
    """Return a column of numbers with NaN, infinities and large integers as floats.

    If one is too large even for a float, they are text. Any other column stays as it is.
    """
    column = as_numbers(column)
    values = [value for value in column if value is not None]
    if not {type(value) for value in values} <= {int, float}:
        return column
    if all(type(value) is float or -MOST <= value < MOST for value in values):
        return column
    try:
        return [None if value is None else float(value) for value in column]
    except OverflowError:
        return [None if value is None else str(value) for value in column]

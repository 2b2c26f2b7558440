"""Columns of numbers, as data frames and Parquet files hold them."""

from typing import Any

from forge_schema.model.results import as_numbers

MOST = 2**63


def numeric(column: list[Any]) -> list[Any]:
    """Return a column of numbers with NaN, infinities and large integers as floats.

    If one is too large even for a float, they are text. Any other column stays as it is.
    """
    column = as_numbers(column)
    told = [value for value in column if value is not None]
    if not {type(value) for value in told} <= {int, float}:
        return column
    if all(type(value) is float or -MOST <= value < MOST for value in told):
        return column
    try:
        return [None if value is None else float(value) for value in column]
    except OverflowError:
        return [None if value is None else str(value) for value in column]

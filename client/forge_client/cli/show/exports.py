"""Rows as files that other programs read: CSV and Parquet."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, BinaryIO, TextIO

from forge_client.cli.show.output import plain
from forge_client.connection import require_extra

Row = Mapping[str, Any]

# What a spreadsheet takes for a formula; who submits a job names it.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(rows: Sequence[Row], to: TextIO) -> None:
    """Write a header and the rows, by RFC 4180; moments are ISO 8601, lists and objects JSON.

    A text that a spreadsheet would take for a formula gets a leading apostrophe.
    """
    writer = csv.writer(to, lineterminator="\r\n")
    names = _names(rows)
    if names:
        writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in names])


def write_parquet(rows: Sequence[Row], to: BinaryIO) -> None:
    """Write the rows as one Parquet file; lists of texts stay lists, objects are JSON texts.

    Raises:
        ClientError: pyarrow is not installed.
    """
    require_extra("pyarrow", "parquet", "write Parquet")
    import pyarrow as pa  # noqa: PLC0415 - only with the extra
    from pyarrow import parquet  # noqa: PLC0415 - as above

    columns = {name: _column([row[name] for row in rows]) for name in _names(rows)}
    # Whole in memory first: a file that ends early is no Parquet.
    buffer = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), buffer)
    to.write(buffer.getvalue().to_pybytes())


def _names(rows: Sequence[Row]) -> list[str]:
    return list(rows[0]) if rows else []


def _cell(value: object) -> object:
    match value:
        case str():
            return f"'{value}" if value.startswith(FORMULA) else value
        case datetime() | date():
            return value.isoformat()
        case Mapping() | list() | tuple():
            return json.dumps(plain(value))
        case _:
            return value


def _column(values: Iterable[object]) -> list[object]:
    return [json.dumps(plain(value)) if isinstance(value, Mapping) else value for value in values]

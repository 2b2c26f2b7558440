"""Runs as a file for other programs: CSV, or Parquet with pyarrow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_schema.model.results import flat
from forge_schema.tables import names_of, numeric, write_csv

from forge_client.connection import require_extra
from forge_client.errors import ClientError


def export(rows: Sequence[Mapping[str, Any]], names: Sequence[str], to: Path) -> None:
    """Write rows to a file, in the format that its name ends in; `names` are there without any.

    Raises:
        ClientError: it ends in another, what writes it is not installed, or it cannot be written.
    """
    writers = {".csv": _csv, ".parquet": _parquet}
    writer = writers.get(to.suffix.lower())
    if writer is None:
        raise ClientError(
            f"{to.name!r} is neither a .csv nor a .parquet file",
            hint="write --to runs.csv or --to runs.parquet",
            code="option_invalid",
        )
    flat_rows = [flat(row) for row in rows]
    try:
        writer(flat_rows, names_of(flat_rows) or [*names], to)
    except OSError as error:
        raise ClientError(
            f"{to} cannot be written: {error.strerror}",
            hint="choose another path",
            code="option_invalid",
        ) from error


def _csv(rows: list[dict[str, Any]], names: list[str], to: Path) -> None:
    with to.open("w", encoding="utf-8", newline="") as file:
        write_csv(rows, names, file)


def _parquet(rows: list[dict[str, Any]], names: list[str], to: Path) -> None:
    require_extra("pyarrow", "parquet", "write Parquet files")
    import pyarrow as pa  # noqa: PLC0415 - only with the extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    columns = {name: _of_one_type(numeric([row.get(name) for row in rows])) for name in names}
    pq.write_table(pa.table(columns), to)


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return values as text if a column cannot hold them all; numbers as they are."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return (
            [None if value is None else float(value) for value in values]
            if float in kinds
            else values
        )
    if len(kinds) == 1 and not kinds & {list, dict}:
        return values
    return [None if value is None else str(value) for value in values]

"""`forge report`: the reporting views."""

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from forge_client.cli.options.session import backend_of
from forge_client.cli.show import narration, output
from forge_client.cli.show.exports import write_csv, write_parquet
from forge_client.cli.show.output import Column, Format, inline
from forge_client.errors import ClientError


class ReportFormat(StrEnum):
    """How to print a report."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def report(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of the report; omit it to list all.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="How far back: 7d, 12h, 2026-11-01.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Columns to group by: owner,queue.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of rows.", min=1)
    ] = 1000,
    form: Annotated[
        ReportFormat,
        typer.Option("--output", "-o", envvar="FORGE_OUTPUT", help="How to print the data."),
    ] = ReportFormat.TABLE,
) -> None:
    """Print a report. Each report is an SQL view of the same name."""
    if form is ReportFormat.PARQUET and sys.stdout.isatty():
        raise ClientError(
            "a terminal cannot show Parquet",
            hint="send it to a file: forge report … -o parquet > report.parquet",
            code="usage",
        )
    with backend_of(context) as backend:
        if name is None:
            _show([{"report": each} for each in backend.reports()], form)
            return
        rows = backend.report(name, since=since, by=_columns(by), count=count)
    _show(rows, form)
    if not rows:
        narration.say("no rows" + (f" since {since}" if since else ""))
    elif len(rows) == count:
        narration.say(f"there may be more than these {count} rows; --count shows them")


def _columns(by: str | None) -> list[str]:
    return [column.strip() for column in by.split(",")] if by else []


def _show(rows: Sequence[dict[str, Any]], form: ReportFormat) -> None:
    match form:
        case ReportFormat.CSV:
            write_csv(rows, sys.stdout)
        case ReportFormat.PARQUET:
            write_parquet(rows, sys.stdout.buffer)
        case _:
            columns: list[Column] = [(key, _reader(key)) for key in (rows[0] if rows else {})]
            output.show(rows, columns, Format(form))


def _reader(key: str) -> Callable[[dict[str, object]], str]:
    return lambda row: inline(row[key])

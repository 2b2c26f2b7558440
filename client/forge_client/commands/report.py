"""`forge report`: the reporting views."""

from collections.abc import Callable
from typing import Annotated

import typer

from forge_client import output
from forge_client.commands.session import backend_of
from forge_client.output import Column, Format, FormatOption, inline


def report(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The report; none lists them.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="At most.", min=1)] = 1000,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print a report, which is an SQL view of the same name."""
    with backend_of(context) as backend:
        if name is None:
            listed: list[Column] = [("REPORT", lambda r: r["report"])]
            output.show([{"report": each} for each in backend.reports()], listed, form)
            return
        rows = backend.report(name, count=count)
    columns: list[Column] = [(key, _reader(key)) for key in (rows[0] if rows else {})]
    output.show(rows, columns, form)


def _reader(key: str) -> Callable[[dict[str, object]], str]:
    return lambda row: inline(row[key])

"""`forge top`: a live overview of jobs and workers in the terminal."""

import sys
from typing import Annotated

import typer
from forge_schema.model.overview import Overview

from forge_client.backend import Backend
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption, span
from forge_client.cli.show import output, screen
from forge_client.cli.show.live import watch
from forge_client.cli.show.output import Format
from forge_client.cli.show.top_view import view

# The number of lines of a tall terminal.
ROWS = 100


def top(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    every: Annotated[str, typer.Option(help="Refresh interval.")] = "2s",
    form: FormatOption = Format.TABLE,
) -> None:
    """Show live jobs, workers and throughput; q or Ctrl-C quits.

    Non-admins see only their own jobs. Prints once if the output is not a terminal, or with
    -o json.
    """
    period_s = span("--every", every).total_seconds()
    with backend_of(context) as backend:
        if once or form is not Format.TABLE or not sys.stdout.isatty():
            seen = _look(backend)
            output.show_one(seen, form, lambda: _print(seen))
        else:
            watch(lambda: _look(backend), view, period_s)


def _look(backend: Backend) -> Overview:
    return backend.overview(jobs=ROWS, workers=ROWS)


def _print(seen: Overview) -> None:
    console = screen.console()
    with console.capture() as text:
        console.print(view(seen))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.get().splitlines()))

"""`forge ps` and `forge show`: a list of jobs, once or live, and one job in detail."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from forge_schema.model.job import ListedJob

from forge_client.cli.options.names import LAST, JobId
from forge_client.cli.options.selection import Query, wider
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import FormatOption, span
from forge_client.cli.quick.completion import states
from forge_client.cli.show import narration, output
from forge_client.cli.show.job_details import details
from forge_client.cli.show.output import Format
from forge_client.cli.show.standing import DROP, NO_JOBS, columns, search
from forge_client.connection import connect
from forge_client.findings import everything

if TYPE_CHECKING:
    from rich.table import Table

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        help="Only jobs in this state; may be given several times.",
        autocompletion=states,
    ),
]


def ps(
    context: typer.Context,
    query: Query = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's jobs.")] = None,
    state: States = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of jobs.", min=1, max=1000)
    ] = 25,
    before: Annotated[int | None, typer.Option(help="Only jobs older than this id.")] = None,
    live: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep it up to date; q or Ctrl-C quits.")
    ] = False,
    every: Annotated[str, typer.Option(help="Refresh interval of --watch.")] = "2s",
    form: FormatOption = Format.TABLE,
) -> None:
    """List the newest jobs, or the newest that match a query.

    A query has terms such as state:failed,running, owner:me, name:resnet*, queue:, worker:,
    sweep:, tag:paper, label:zone=eu*, 'param:lr>0.01', 'metric:loss<0.2', reason:oom, since:2d; all
    must match. A number is a job's id, and other words are parts of names. A narrow terminal shows
    fewer columns.
    """
    settings, period_s = settings_of(context), span("--every", every).total_seconds()
    with connect(settings) as backend:
        if mine:
            owner = settings.job_owner or backend.me().owner

        text = " ".join(query or ())
        chosen = partial(
            search, backend, text, owner=owner, states=state or None, before=before, count=count
        )

        if live and form is Format.TABLE and sys.stdout.isatty():
            # Rich's screens take a while to import.
            from forge_client.cli.show.live import watch  # noqa: PLC0415

            watch(lambda: chosen()[0], _view, period_s)
        else:
            rows, more = chosen()
            if rows or form is not Format.TABLE:
                output.show(rows, columns(rows), form, DROP)
            elif query or state or owner or before:
                hint = wider(backend, query or (), owner=owner, states=state, before=before)
                narration.say(f"no job matches{hint}")
            else:
                narration.say(NO_JOBS)
            if more:
                narration.say(more)


def _view(rows: list[ListedJob], height: int, trouble: str) -> "Table":
    from forge_client.cli.show import live  # noqa: PLC0415 - as above

    # The title, and a line for the trouble.
    shown = output.table(rows[: max(1, height - 2)], columns(rows), output.width(), DROP)
    return live.grid(shown, gap=1, note=trouble)


def show(context: typer.Context, job: JobId = LAST, form: FormatOption = Format.TABLE) -> None:
    """Show one job: its state, results, configuration, attempts and events.

    Without JOB, your newest.
    """
    with backend_of(context) as backend:
        records = everything(backend, job)
    output.show_one(records, form, lambda: details(**records))

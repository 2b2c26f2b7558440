"""`forge report`: the reporting views."""

import sys
from typing import Annotated, Any

import typer
from forge_schema.read.report_definitions import REPORTS

from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.names import reports
from forge_client.cli.options.session import backend_of
from forge_client.cli.show.report_rows import ReportFormat, ReportPart, list_names, show_report
from forge_client.errors import ClientError

Form = Annotated[
    ReportFormat,
    typer.Option("--output", "-o", envvar="FORGE_OUTPUT", help="How to print the data."),
]


class ReportVerbs(VerbNames):
    """Knows the name of a report where a verb belongs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer hides which click it is
        """Return the command of a verb."""
        if args and args[0] in REPORTS:
            ctx.fail(f"did you mean `forge report show {args[0]}`?")
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=ReportVerbs, help="Reports: SQL views of jobs, cost, waiting, losses.")


@app.callback(invoke_without_command=True)
def report(context: typer.Context) -> None:
    """Print reports. Each report is an SQL view of the same name."""
    if context.invoked_subcommand is None:
        show(context)


@app.command("list")
def list_reports(
    context: typer.Context,
    form: Form = ReportFormat.TABLE,
) -> None:
    """List the reports."""
    show(context, form=form)


@app.command()
def show(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="REPORT",
            help="Name of the report; omit it to list all.",
            autocompletion=reports,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="How far back: 7d, yesterday, 2026-11-01, all; default: 7d where it is summed up.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Where it ends, in the same forms; not a part of it."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", help="Columns to group by: owner,month.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", help="Maximum number of rows; default: 1000, on a terminal 25.", min=1
        ),
    ] = None,
    form: Form = ReportFormat.TABLE,
) -> None:
    """Print a report."""
    if form is ReportFormat.PARQUET and sys.stdout.isatty():
        raise ClientError(
            "a terminal cannot show Parquet",
            hint="send it to a file: forge report show … -o parquet > report.parquet",
            code="usage",
        )
    with backend_of(context) as backend:
        if name is None:
            list_names(backend, form)
        else:
            show_report(backend, name, ReportPart(since, until, by, count), form)

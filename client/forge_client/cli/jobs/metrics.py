"""`forge metrics`: the metrics that a job wrote to `$FORGE_METRICS_FILE`."""

from collections.abc import Iterable
from typing import Annotated

import typer
from forge_schema.model.results import LastMetric, MetricLine

from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago, inline
from forge_client.findings import all_metrics
from forge_client.results.names import require_rank

LAST: list[Column] = [
    ("METRIC", lambda m: m.key),
    ("VALUE", lambda m: inline(m.value)),
    ("STEP", lambda m: inline(m.step)),
    ("ATTEMPT", lambda m: m.attempt),
    ("WRITTEN", lambda m: ago(m.at)),
]
LINES: list[Column] = [
    ("ATTEMPT", lambda m: m.attempt),
    ("AT", lambda m: inline(m.at)),
    ("STEP", lambda m: inline(m.step)),
    ("VALUES", lambda m: inline({key: v for key, v in m.values.items() if key != "step"})),
]


def metrics(
    context: typer.Context,
    job: JobId,
    every: Annotated[
        bool, typer.Option("--all", help="Print every line, in the order written.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(help="Only this attempt; default: the newest with metrics.", min=1)
    ] = None,
    rank: Annotated[int, typer.Option(help="Rank, for a job with several.", min=0)] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a job's metrics: the last value of each key in $FORGE_METRICS_FILE.

    It is looked for in the last thousand lines; with --all, every line of every attempt is shown.
    """
    found: Iterable[LastMetric | MetricLine]
    with backend_of(context) as backend:
        if rank:
            require_rank(backend.job(job), rank)
        if every:
            found = all_metrics(backend.findings, job, rank=rank, attempt=attempt)
        else:
            found = backend.findings.last_metrics(job, rank=rank, attempt=attempt)
        if form is Format.TABLE and not (found := list(found)):
            narration.say(f"job {job} has written no metrics" + " there" * bool(attempt or rank))
            return
        output.show(found, LINES if every else LAST, form)

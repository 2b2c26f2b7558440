"""`forge runs`: jobs with their parameters, metrics and results, sorted, grouped or exported."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from forge_schema.model.quantities import counted
from forge_schema.model.results import (
    ANY_METRIC,
    FIELDS,
    Run,
    columns_of,
    differing,
    drawn_metric,
    measured,
)

from forge_client.cli.options.selection import Query, wider
from forge_client.cli.options.session import settings_of
from forge_client.cli.runs.export import export
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, FormatOption, ago, inline
from forge_client.cli.show.standing import ran
from forge_client.connection import connect

MOST = 1000
# What is shown of them if no columns are chosen.
METRICS, RESULTS = 3, 3
BARS = "▁▂▃▄▅▆▇█"
HASH = 8
DROP = ("REVISION", "COST", "SUBMITTED", "TIME", "CURVE", "NAME")


def runs(
    context: typer.Context,
    query: Query = None,
    sort: Annotated[
        str | None,
        typer.Option(help="Column to sort by, e.g. lr, loss, loss.best, seconds or cost."),
    ] = None,
    descending: Annotated[
        bool, typer.Option("--descending", "-d", help="The highest values first.")
    ] = False,
    columns: Annotated[
        str | None, typer.Option(help="Columns to show, e.g. lr,loss,loss.best,seconds.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric to draw; default: the first one shown.")
    ] = None,
    by: Annotated[
        Literal["experiment", "sweep", "owner"] | None,
        typer.Option(help="List the experiments, sweeps or owners of the runs instead."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Write all columns to this file, .csv or .parquet.", dir_okay=False),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's jobs.")] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of runs.", min=1, max=MOST)
    ] = 25,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare jobs: their parameters, last and best metrics, results, duration and cost.

    Takes a query as `forge ps` does, such as experiment:resnet* since:7d. The newest thousand jobs
    that match are sorted.
    """
    settings = settings_of(context)
    with connect(settings) as backend:
        if mine:
            owner = settings.job_owner or backend.me().owner
        named = columns.split(",") if columns else None
        wanted = [metric] if metric else named or [ANY_METRIC]
        found = backend.findings.runs(
            " ".join(query or ()),
            owner=owner,
            sort=sort,
            descending=descending,
            curve=() if by or to or form is not Format.TABLE else wanted,
            count=MOST if by or to else count,
        )
        nothing = "no jobs yet"
        if not found and (query or owner):
            nothing = f"no job matches{wider(backend, query or (), owner=owner)}"
        if sort and found and all(run.value(sort) is None for run in found):
            narration.say(f"none of these runs has a value of {sort!r} to sort by", "yellow")
    if to:
        export(found, to)
        narration.say(f"{counted(len(found), 'run')} in {to}")
    elif by:
        output.show(_groups(found, by), _group_columns(by), form)
    elif found or form is not Format.TABLE:
        curve = ["curve"] if metric or drawn_metric(found, wanted) else []
        shown = [*(named or _columns(found)), *curve]
        output.show(found, [_column(one) for one in shown], form, DROP)
    else:
        narration.say(nothing)


def sparkline(values: list[float]) -> str:
    """Return a curve of one line."""
    if not values:
        return ""
    least, extent = min(values), max(values) - min(values)
    places = [(value - least) / extent if extent else 0.5 for value in values]
    return "".join(BARS[min(int(place * len(BARS)), len(BARS) - 1)] for place in places)


def revision(run: Run) -> str:
    """Return the commit of a run's code, with a plus if more was changed."""
    return f"{run.revision[:HASH]}{'+' * run.dirty}" if run.revision else ""


# Fields that are written for people.
WRITTEN: dict[str, tuple[str, Callable[[Run], object]]] = {
    "job_id": ("JOB", lambda run: run.job_id),
    "state": ("STATE", lambda run: run.state.word),
    "seconds": ("TIME", lambda run: ran(run.seconds or None)),
    "revision": ("REVISION", revision),
    "submitted_at": ("SUBMITTED", lambda run: ago(run.submitted_at)),
    "finished_at": ("ENDED", lambda run: ago(run.finished_at)),
    "curve": ("CURVE", lambda run: sparkline(run.curve or [])),
}


def _columns(found: list[Run]) -> list[str]:
    """Return the columns that tell runs apart: of metrics, the last and the best value."""
    return [
        *("job_id", "name", "state"),
        *differing(found),
        *(column for key in measured(found)[:METRICS] for column in (key, f"{key}.best")),
        *(f"result.{key}" for key in columns_of(found, "result")[:RESULTS]),
        *("seconds", "cost", "revision"),
    ]


def _column(name: str) -> Column:
    if name in WRITTEN:
        return WRITTEN[name]
    return name.upper() if name in FIELDS else name, lambda run: inline(run.value(name))


def _groups(found: list[Run], by: str) -> list[dict[str, object]]:
    grouped: dict[str, list[Run]] = {}
    for run in found:
        if name := getattr(run, by):
            grouped.setdefault(name, []).append(run)
    return [
        {
            by: name,
            "runs": len(group),
            "states": dict(Counter(run.state.word for run in group)),
            "seconds": sum(run.seconds for run in group),
            "cost": sum(run.cost for run in group if run.cost is not None),
            "submitted_at": max(run.submitted_at for run in group),
        }
        for name, group in grouped.items()
    ]


def _group_columns(by: str) -> list[Column]:
    return [
        (by.upper(), lambda g: g[by]),
        ("RUNS", lambda g: g["runs"]),
        ("STATES", lambda g: ", ".join(f"{count} {word}" for word, count in g["states"].items())),
        ("TIME", lambda g: ran(g["seconds"])),
        ("COST", lambda g: inline(g["cost"])),
        ("NEWEST", lambda g: ago(g["submitted_at"])),
    ]

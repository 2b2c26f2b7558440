"""`forge runs`: jobs with their parameters, metrics and results, sorted, grouped or exported."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from forge_schema.model.quantities import counted, numbered
from forge_schema.model.results import (
    ANY_METRIC,
    FIELDS,
    MOST_RUNS,
    GroupedBy,
    Run,
    RunGroup,
    Runs,
    columns_of,
    differing,
    drawn_metric,
    flat,
    measured,
    require_columns,
    require_metric,
)
from forge_schema.tables import names_of, numeric, write_csv

from forge_client.backend import Backend
from forge_client.cli.options.selection import Query, wider
from forge_client.cli.options.session import settings_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago, brief, inline
from forge_client.cli.show.plot import sparkline
from forge_client.cli.show.standing import ran
from forge_client.connection import connect, require_extra
from forge_client.errors import InvalidInput, as_client_error

# What is shown of them if nothing is chosen.
SHOWN, METRICS, RESULTS = 25, 3, 3
# Of files: each run has another one.
LEFT_OUT = {"curve"}
HASH = 8
CURVE = "CURVE"
DROP = ("TAGS", "REVISION", "COST", "SUBMITTED", "TIME", CURVE)


def export(rows: Sequence[Mapping[str, Any]], names: Sequence[str], to: Path) -> None:
    """Write rows to a file, in the format that its name ends in; `names` are there without any.

    Raises:
        ClientError: it ends in another, what writes it is not installed, or it cannot be written.
    """
    writers = {".csv": _csv, ".parquet": _parquet}
    writer = writers.get(to.suffix.lower())
    if writer is None:
        raise InvalidInput(
            f"{to.name!r} is neither a .csv nor a .parquet file",
            hint="write --to runs.csv or --to runs.parquet",
        )
    flat_rows = [flat(row) for row in rows]
    try:
        writer(flat_rows, names_of(flat_rows) or [*names], to)
    except OSError as error:
        raise InvalidInput(
            f"{to} cannot be written: {error.strerror}", hint="choose another path"
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
        str | None,
        typer.Option(
            help="Metric to draw; default: that of --columns or --sort, else the first one shown."
        ),
    ] = None,
    by: Annotated[
        GroupedBy | None,
        typer.Option(help="List the experiments, sweeps or owners of the runs instead."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Write all columns, or --columns, to this file, .csv or .parquet.", dir_okay=False
        ),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's jobs.")] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            help="Maximum number of runs; default: 25, of files and JSON 10,000.",
            min=1,
            max=MOST_RUNS,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare jobs: their parameters, last and best metrics, results, duration and cost.

    Takes a query as `forge ps` does, such as experiment:resnet* since:7d. All jobs that match are
    sorted or grouped, up to the newest 10,000.
    """
    if by and (sort or columns or metric):
        raise InvalidInput(
            f"--by {by} lists groups, to which --sort, --columns and --metric do not apply",
            hint="leave --by out, or the others",
        )
    settings = settings_of(context)
    with connect(settings) as backend:
        if mine:
            owner = settings.job_owner or backend.me().owner
        text = " ".join(query or ())
        if by:
            _show_groups(backend, text, by, owner, count, to, form)
            return
        named = columns.split(",") if columns else None
        wanted = [metric] if metric else named or [*([sort] if sort else ()), ANY_METRIC]
        drawn = bool(metric) or not (to or form is not Format.TABLE)
        part = backend.findings.runs(
            text,
            owner=owner,
            sort=sort,
            descending=descending,
            curve=wanted if drawn else (),
            count=count or (SHOWN if form is Format.TABLE and not to else MOST_RUNS),
        )
        rows = part.items
        nothing = "no jobs yet"
        if not rows and (query or owner):
            nothing = f"no job matches{wider(backend, query or (), owner=owner)}"
    with as_client_error():
        require_columns(rows, named or ())
        if metric:
            require_metric(rows, metric)
    if to:
        export(_rows(rows, named), named or [*Run.model_fields], to)
        narration.say(f"{counted(len(rows), 'run')} in {to}")
    elif rows or form is not Format.TABLE:
        _show(rows, named, wanted, form)
    else:
        narration.say(nothing)
    _say_what_is_missing(part, sort, is_chosen=count is not None)


def _rows(rows: list[Run], named: list[str] | None) -> list[dict[str, Any]]:
    if named:
        return [{name: run.value(name) for name in named} for run in rows]
    return [run.model_dump(exclude=LEFT_OUT) for run in rows]


def _show(rows: list[Run], named: list[str] | None, wanted: list[str], form: Format) -> None:
    shown = named or _columns(rows)
    # Without the id, nothing can be done with a row.
    shown = shown if form is not Format.TABLE or "job_id" in shown else ["job_id", *shown]
    columns = [_column(column) for column in shown]
    # What is chosen is shown; else the job and its name stay longest.
    drop = DROP if named else _unneeded(rows, shown)
    if key := drawn_metric(rows, wanted):
        curve = f"{CURVE} {key}"
        columns.append((curve, lambda run: sparkline(run.curve or [])))
        drop = tuple(curve if column == CURVE else column for column in drop)
    output.show(rows, columns, form, drop)


def _say_what_is_missing(part: Runs, sort: str | None, *, is_chosen: bool) -> None:
    """Say whether other runs match; of those that `-n` leaves out, nothing if it was chosen."""
    if part.more and (sort or part.found == MOST_RUNS):
        _say_more("sorted" if sort else "here")
    elif not is_chosen and len(part.items) < part.found:
        narration.say(f"the first {len(part.items)} of {counted(part.found, 'run')}; see -n", "dim")
    elif not is_chosen and part.more:
        narration.say(f"the newest {counted(part.found, 'run')}; -n shows older ones too", "dim")


def _say_more(done: str) -> None:
    text = f"only the newest {counted(MOST_RUNS, 'job')} that match are {done}; narrow the query"
    narration.say(text, "yellow")


def _show_groups(
    backend: Backend,
    query: str,
    by: GroupedBy,
    owner: str | None,
    count: int | None,
    to: Path | None,
    form: Format,
) -> None:
    groups = backend.findings.run_groups(query, by=by, owner=owner)
    rows = [_group(item, by) for item in groups.items[:count]]
    if to:
        export(rows, [by], to)
        narration.say(f"{counted(len(rows), by)} in {to}")
    else:
        output.show(rows, _group_columns(by), form, nothing="no job matches")
    if groups.more:
        _say_more("counted")


def revision(run: Run) -> str:
    """Return the commit of a run's code, with a plus if more was changed."""
    return f"{run.revision[:HASH]}{'+' * run.dirty}" if run.revision else ""


# Fields that are written for people.
WRITTEN: dict[str, tuple[str, Callable[[Run], object]]] = {
    "job_id": ("JOB", lambda run: numbered(run.job_id, run.task)),
    "state": ("STATE", lambda run: run.state),
    "seconds": ("TIME", lambda run: ran(run.seconds or None)),
    "revision": ("REVISION", revision),
    "submitted_at": ("SUBMITTED", lambda run: ago(run.submitted_at)),
    "finished_at": ("ENDED", lambda run: ago(run.finished_at)),
    "tags": ("TAGS", lambda run: " ".join(run.tags)),
}


def _columns(rows: list[Run]) -> list[str]:
    """Return the columns that tell runs apart: of metrics, the last and the best value."""
    return [
        *("job_id", "name", "state"),
        *(_qualified("parameters", key) for key in differing(rows)),
        *(
            column
            for key in measured(rows)[:METRICS]
            for column in (_qualified("metrics", key), f"{_qualified('metrics', key)}.best")
        ),
        *(f"result.{key}" for key in columns_of(rows, "result")[:RESULTS]),
        *("seconds", "cost", "revision"),
        *(["tags"] if any(run.tags for run in rows) else ()),
    ]


def _unneeded(rows: list[Run], shown: list[str]) -> tuple[str, ...]:
    """Return the titles that a narrow terminal leaves out: copies first, then the least telling."""
    own = [column for column in shown if column not in FIELDS]
    results = [column for column in own if column.startswith("result.")]
    best = [column for column in own if column.endswith(".best") and column not in results]
    others = [column for column in own if column not in {*results, *best}]
    later = (*DROP[:-1], *reversed(results), *reversed(best), CURVE, *reversed(others[1:]))
    return (*_copies(rows, own), *later)


def _copies(rows: list[Run], own: list[str]) -> list[str]:
    """Return the columns that show what another of their key does, as `loss.best` of `loss`."""
    there: set[tuple[str, ...]] = set()
    copies = []
    for column in own:
        key = column.removeprefix("result.").removesuffix(".best")
        values = (key, *(brief(run.value(column)) for run in rows))
        if values in there:
            copies.append(column)
        there.add(values)
    return copies


def _qualified(table: str, key: str) -> str:
    """Return the column of a key, which a field of its name would hide."""
    return f"{table}.{key}" if key in FIELDS else key


def _column(name: str) -> Column:
    if name in WRITTEN:
        return WRITTEN[name]
    return name.upper() if name in FIELDS else name, lambda run: brief(run.value(name))


def _group(group: RunGroup, by: str) -> dict[str, Any]:
    fields = group.model_dump(exclude={"name", "first_submitted_at"})
    return {by: group.name, **fields, "states": group.states}


def _group_columns(by: str) -> list[Column]:
    return [
        (by.upper(), lambda g: g[by]),
        ("RUNS", lambda g: g["runs"]),
        ("STATES", lambda g: ", ".join(f"{count} {word}" for word, count in g["states"].items())),
        ("TIME", lambda g: ran(g["seconds"])),
        ("COST", lambda g: "" if g["cost"] is None else inline(g["cost"])),
        ("NEWEST", lambda g: ago(g["submitted_at"])),
    ]

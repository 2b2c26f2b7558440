"""`forge benchmark` and `forge sweep`: a matrix of jobs, and its results."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import counted, names_text, numbered
from forge_schema.model.results import SweepPoint
from forge_schema.model.spec import MOST_PARALLEL

from forge_client.cli.options import job_options as o
from forge_client.cli.options.command_line import JobCommand, VerbNames
from forge_client.cli.options.names import sweeps, teams
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption
from forge_client.cli.plans import search
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago, brief, inline
from forge_client.cli.show.plot import bars
from forge_client.cli.show.submitted import ready, send, show_plan
from forge_client.connection import connect
from forge_client.findings import all_points
from forge_client.findings import sweeps as newest
from forge_client.project.matrix import expanded, from_options, from_toml, sweep_name
from forge_client.project.tasks import packing
from forge_client.results.comparison import PointGroup, usual_metric
from forge_client.results.comparison import compare as compared
from forge_client.results.names import SHOWN, whole_name

app = typer.Typer(
    cls=VerbNames, no_args_is_help=True, help="Sweeps: search, list, results, comparison."
)
app.command("run", cls=JobCommand)(search.run)
app.command("resume")(search.resume)
SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's name, or the start of it.", autocompletion=sweeps
    ),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(help="Maximum number of jobs to run at once.", min=1, max=MOST_PARALLEL),
]
OwnerOption = Annotated[str | None, typer.Option(help="Owner of the sweep; default: you.")]
# Of bars; longer ones are no easier to compare.
WIDEST = 100


@o.with_job_options()
def benchmark(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Project folder, with an optional forge.toml.")
    ] = Path(),
    matrix: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE,VALUE; one job per combination.")
    ] = None,
    repeat: Annotated[int | None, typer.Option(help="Number of jobs per point.", min=1)] = None,
    parallel: ParallelOption = None,
    per_job: Annotated[
        int | None,
        typer.Option(
            help="Run so many of them in one job, one after another; default: one.", min=1
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Prefix of the sweep's name; default: the job's name.")
    ] = None,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit one job per combination of parameters, all or none.

    In the command, {name} stands for a parameter's value, {repeat} for the job's number among those
    of the same point, and {{ for a brace. The sweep's name is printed on stdout; `forge sweep`
    shows its progress. A job writes its results as one JSON object to $FORGE_RESULT_FILE.
    """
    project = o.project_of(context)
    base = o.named_request(context, project).changed({"parallel": parallel or project.parallel})
    key = base.idempotency_key
    made = sweep_name(sweep or base.name or "job", key)
    requests = expanded(
        base,
        {**from_toml(project.matrix), **from_options(matrix or [])},
        repeat=repeat or project.repeat,
        sweep=made,
        key=key,
    )
    settings = settings_of(context, project)
    with packing(requests, per_job) as packed:
        whole = ready(settings.job_owner, project, packed.requests, folder, files=packed.files)
        if dry_run:
            show_plan(settings, whole, form)
            return
        with connect(settings) as backend:
            ids = send(backend, whole)
    # Of a benchmark with a key that has grown, some jobs are older.
    in_a_row = ids[-1] - ids[0] == len(ids) - 1
    which = f"{ids[0]} to {ids[-1]}" if in_a_row else names_text([*map(str, ids)])
    many = f"{counted(len(ids), 'job')}, {which}"
    named = many if len(ids) > 1 else f"job {ids[0]}"
    narration.say(f"{named}; `forge sweep show {made}` shows the results")
    answer = {"sweep": made, "job_ids": ids}
    output.show_one(answer, form, lambda: print(made))  # noqa: T201 - the data


@app.command("list")
def list_sweeps(
    context: typer.Context,
    owner: OwnerOption = None,
    team: Annotated[
        str | None, typer.Option(help="Those of a team that you see.", autocompletion=teams)
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List your newest sweeps and searches, or a team's, of the last 10,000 jobs in one."""
    settings = settings_of(context)
    with connect(settings) as backend:
        groups = newest(backend, owner=owner, team=team, own=settings.job_owner)
    rows = [
        {
            "sweep": item.name,
            "jobs": item.runs,
            "states": item.states,
            "submitted_at": item.first_submitted_at,
        }
        for item in groups.items
    ]
    nothing = "no sweeps yet; `forge benchmark` submits one, `forge sweep run` searches"
    output.show(rows, LIST_COLUMNS, form, ("SUBMITTED",), nothing=nothing)
    if groups.more:
        narration.say("only the newest 10,000 jobs in sweeps are counted", "yellow")


LIST_COLUMNS: list[Column] = [
    ("SWEEP", lambda s: s["sweep"]),
    ("JOBS", lambda s: s["jobs"]),
    ("STATES", lambda s: ", ".join(f"{count} {word}" for word, count in s["states"].items())),
    ("SUBMITTED", lambda s: ago(s["submitted_at"])),
]


@app.command("show")
def sweep(
    context: typer.Context,
    name: SweepName,
    parallel: ParallelOption = None,
    owner: OwnerOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the progress and the results of a sweep, or change how many of its jobs run at once."""
    with backend_of(context) as backend:
        name = whole_name(backend, name, owner)
        if parallel is not None:
            backend.findings.set_parallel(name, parallel, owner=owner)
            narration.say(f"{name}: at most {parallel} at once")
        states = backend.findings.sweep(name, owner=owner)
        points = list(all_points(backend.findings, name, owner=owner))
    everything = {"sweep": name, "states": states, "points": points}
    output.show_one(everything, form, lambda: _print(states, points))


def _print(states: dict[str, int], points: list[SweepPoint]) -> None:
    output.show(points, _columns(points), Format.TABLE, ("SECONDS",))
    narration.say(", ".join(f"{count} {word}" for word, count in states.items()))


def _columns(points: list[SweepPoint]) -> list[Column]:
    parameters = dict.fromkeys(name for point in points for name in point.parameters)
    results = dict.fromkeys(name for point in points for name in point.result or {})
    return [
        ("JOB", lambda p: numbered(p.job_id, p.task)),
        ("STATE", lambda p: p.state),
        *((name, _parameter(name)) for name in parameters),
        *((f"result.{name}", _result(name)) for name in results),
        ("SECONDS", lambda p: "" if p.seconds is None else f"{p.seconds:.1f}"),
        *([("WHY", lambda p: brief(p.detail))] if any(point.detail for point in points) else []),
    ]


def _parameter(name: str) -> Callable[[SweepPoint], str]:
    return lambda point: inline(point.parameters.get(name))


def _result(name: str) -> Callable[[SweepPoint], str]:
    return lambda point: brief((point.result or {}).get(name))


def _difference(group: PointGroup) -> str:
    if group.is_baseline:
        return "baseline"
    share = "" if group.ratio is None else f"{group.ratio - 1:+.1%}"
    return share if group.difference is None else f"{group.difference:+.4g} {share}".rstrip()


@app.command()
def compare(
    context: typer.Context,
    name: SweepName,
    other: Annotated[
        str | None,
        typer.Argument(metavar="SWEEP2", help="Second sweep, to compare with the first."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="seconds, gpu_seconds, energy_j or cost of all attempts, last_seconds of the last"
            " one, a key of the result, or a metric: loss.best. Default: a loss, else seconds."
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Parameter to group by; default: not repeat, not trial."),
    ] = None,
    owner: OwnerOption = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw a bar for each mean.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare the results of one sweep or two; successful jobs only.

    DIFFERENCE is from the baseline's mean: the first group or, with two sweeps, the same group in
    the first.
    """
    with backend_of(context) as backend:
        points = {
            each: list(all_points(backend.findings, each, owner=owner))
            for each in dict.fromkeys(
                whole_name(backend, sweep, owner) for sweep in (name, other) if sweep
            )
        }
    metric = metric or usual_metric(points)
    names = [field for text in by or [] for field in text.split(",")] or None
    comparison = compared(points, metric, names)
    columns: list[Column] = [
        *([("SWEEP", lambda g: g.sweep)] if other else []),
        ("BY", lambda g: inline(g.by)),
        ("N", lambda g: g.count),
        ("MEAN", lambda g: inline(g.mean)),
        ("MEDIAN", lambda g: inline(g.median)),
        ("SPREAD", lambda g: inline(g.spread)),
        ("DIFFERENCE", _difference),
    ]
    rows = [vars(group) for group in comparison.groups]
    others = names_text(comparison.others, SHOWN)
    narration.say(f"{metric} of each job. Other metrics: {others}", "dim")
    if comparison.groups[1:]:
        its = comparison.baseline.by if comparison.baseline else None
        named = inline(its) if its is not None else f"the same group of {next(iter(points))}"
        narration.say(f"the baseline is {named or 'all jobs'}", "dim")
    if plot:
        means = [(inline(g.by), g.mean) for g in comparison.groups]
        for line in bars(means, min(output.width(), WIDEST)):
            print(line)  # noqa: T201 - the data
    elif rows or form is not Format.TABLE:
        output.show(comparison.groups if form is Format.TABLE else rows, columns, form)
    if comparison.without:
        narration.say(
            f"{counted(comparison.without, 'job')} did not succeed or reported no finite {metric}"
        )

"""`forge artifacts`, `forge checkpoints` and `forge metrics`: what a job has stored."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import duration_text, size_text
from forge_schema.model.reading import files_and_links
from forge_schema.model.results import Curve, LastMetric, MetricLine

from forge_client.backend import Backend
from forge_client.cli.options.names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.job_details import source
from forge_client.cli.show.output import Column, Format, ago, in_a_line, inline
from forge_client.cli.show.plot import curve as plot_curve
from forge_client.downloads import download_all
from forge_client.findings import all_metrics
from forge_client.results.names import chosen_files, require_metrics, require_rank

ARTIFACTS: list[Column] = [
    ("PATH", lambda a: in_a_line(a.path if a.target is None else f"{a.path} -> {a.target}")),
    ("SIZE", lambda a: size_text(a.bytes) if a.target is None else "link"),
    ("SHA256", lambda a: a.sha256),
]
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

# The width of what goes to a file.
COLUMNS = 80


def artifacts(
    context: typer.Context,
    job: JobId,
    only: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Only these paths or patterns, as 'best*.pt'."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Fetch them into this folder, verified.", file_okay=False)
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List or download the files in a job's output folder."""
    with backend_of(context) as backend:
        backend.job(job)
        files = backend.artifacts(job)
        if files and only:
            files = chosen_files(job, files, only)
        if not files:
            narration.say(f"job {job} has no artifacts; a job writes them to $FORGE_OUTPUT_DIR")
        elif to is not None:
            total = sum(file.bytes for file in files if file.target is None)
            with narration.transfer("downloading", total) as progress:
                download_all(backend, files, to, progress)
            narration.say(f"{files_and_links(files)}, {size_text(total)}, in {to}")
    if files or form is not Format.TABLE:
        output.show(files, ARTIFACTS, form, ("SHA256",))


NAME: list[Column] = [("CHECKPOINT", lambda c: c.name)]
STEP: list[Column] = [("STEP", lambda c: "" if c.step is None else c.step)]
CHECKPOINTS: list[Column] = [
    ("AGE", lambda c: duration_text(c.age_s)),
    ("FILES", lambda c: c.files),
    ("SIZE", lambda c: size_text(c.bytes)),
    ("NEXT", lambda c: c.standing),
]


def checkpoints(context: typer.Context, job: JobId, form: FormatOption = Format.TABLE) -> None:
    """List a job's complete checkpoints, the newest first.

    `forge submit --from-checkpoint JOB:CHECKPOINT` starts another job from one of them.
    """
    with backend_of(context) as backend:
        detail = backend.job(job)
        stored = backend.checkpoints(job)
    if not stored:
        yet = "" if detail.terminal else " yet"
        start = f"; it starts from {source(detail)}" if source(detail) else ""
        narration.say(f"job {job} has no checkpoint{yet}{start}")
    steps = STEP if any(checkpoint.step is not None for checkpoint in stored) else []
    output.show(stored, [*NAME, *steps, *CHECKPOINTS], form)


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
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the curve of each metric over its steps.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric; may be repeated.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a job's metrics: the last value of each key in $FORGE_METRICS_FILE.

    Searches the last 1,000 lines; with --all, every line of every attempt is shown.
    """
    lines: Iterable[LastMetric | MetricLine]
    with backend_of(context) as backend:
        if rank:
            require_rank(backend.job(job), rank)
        if plot:
            _plot(job, _curves(backend, job, only, attempt, rank))
            return
        if every:
            read = all_metrics(backend.findings, job, rank=rank, attempt=attempt)
            lines = _with_values(job, read, only)
        else:
            last = backend.findings.last_metrics(job, rank=rank, attempt=attempt)
            lines = [*_named(job, last, only)]
        if form is Format.TABLE and not (lines := list(lines)):
            narration.say(f"job {job} has written no metrics" + " there" * bool(attempt or rank))
            return
        output.show(lines, LINES if every else LAST, form)


def _named(
    job: int, metrics: Iterable[LastMetric], only: Sequence[str] | None
) -> Iterator[LastMetric]:
    """Yield the metrics of these names, all without any; refuse unknown ones after the last."""
    known: list[str] = []
    for metric in metrics:
        known.append(metric.key)
        if not only or metric.key in only:
            yield metric
    require_metrics(job, only or (), known)


def _curves(
    backend: Backend, job: int, only: Sequence[str] | None, attempt: int | None, rank: int
) -> list[Curve]:
    """Return the curves of these metrics, or of the first ones; refuse unknown names."""

    def drawn(keys: Sequence[str] | None) -> list[Curve]:
        series = backend.findings.series(job, keys=keys, attempt=attempt, rank=rank)
        return [one for one in series.items if one.source == "metric" and one.key != "step"]

    curves = drawn(only)
    known = {one.key for one in curves}
    if only and not known.issuperset(only):
        # Only to say which there are.
        require_metrics(job, only, sorted(known | {one.key for one in drawn(None)}))
    return curves


def _with_values(
    job: int, lines: Iterable[MetricLine], only: Sequence[str] | None
) -> Iterator[MetricLine]:
    """Yield the lines that have one of these values, with no others; as `_named`."""
    known: dict[str, None] = {}
    for line in lines:
        known |= dict.fromkeys(line.values)
        values = {key: value for key, value in line.values.items() if not only or key in only}
        if values or not only:
            yield line.model_copy(update={"values": values})
    require_metrics(job, only or (), [*known])


def _plot(job: int, curves: Sequence[Curve]) -> None:
    columns = output.width() if sys.stdout.isatty() else COLUMNS
    for number, metric in enumerate(curves):
        if number:
            output.blank()
        # Without steps, its values are in the order in which they were written.
        points = [
            (float(place) if step is None else step, math.nan if value is None else value)
            for place, (step, value) in enumerate(zip(metric.step, metric.last, strict=True))
        ]
        output.fields([(metric.key, f"last {inline(metric.newest)}")])
        for line in plot_curve(points, columns):
            print(line)  # noqa: T201 - the data
    if not curves:
        narration.say(f"job {job} has written no such metrics")

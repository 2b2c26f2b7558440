"""`forge top`: a live overview of jobs and workers in the terminal."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer
from forge_schema.model.overview import Overview, RunningJob, WorkerUse
from forge_schema.model.quantities import counted, duration_text, names_text, size_text
from forge_schema.model.states import Reason, StateWord
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forge_client.backend import Backend
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption, span
from forge_client.cli.show import live, output
from forge_client.cli.show.live import watch
from forge_client.cli.show.output import CONTROLS, STATE_STYLES, Format
from forge_client.cli.show.plot import sparkline
from forge_client.cli.show.standing import heard, metrics_text

W = TypeVar("W", bound=str)
RECENT_MIN = 10
HEAD_LINES = 8
LEAST_ROWS = 3
MOST_METRICS = 4
# The number of lines of a tall terminal.
ROWS = 100

WORKERS: list[tuple[str, Callable[[WorkerUse], str]]] = [
    ("WORKER", lambda w: w.name),
    ("STATUS", lambda w: w.status),
    ("HEARD", heard),
    ("JOBS", lambda w: str(w.leases)),
    ("CPU", lambda w: _percent(w.condition.get("cpu_percent"))),
    ("MEMORY", lambda w: _percent(w.condition.get("memory_percent"))),
    ("GPU", lambda w: _gpu_use(w.condition.get("gpus"), w.gpus)),
]
JOBS: list[tuple[str, Callable[[RunningJob], str]]] = [
    ("JOB", lambda j: str(j.job_id)),
    ("NAME", lambda j: j.name),
    ("OWNER", lambda j: j.owner),
    ("WORKER", lambda j: names_text(j.workers, 2) or j.worker or ""),
    ("TRY", lambda j: str(j.attempt)),
    ("PHASE", lambda j: f"{j.asked}: {j.phase}" if j.asked else j.phase),
    ("DONE", lambda j: "" if j.progress is None else _percent(100 * j.progress)),
    ("FOR", lambda j: duration_text(j.elapsed_s)),
    ("MEMORY", lambda j: _size((j.used or {}).get("memory_mb"))),
    ("GPU", lambda j: _gpu_use((j.used or {}).get("gpus"), j.gpus)),
    ("LAST", lambda j: metrics_text(j.metrics, MOST_METRICS)),
]


def view(seen: Overview, height: int | None = None, trouble: str = "") -> RenderableType:
    """Render an overview for rich.

    Args:
        seen: the overview.
        height: the number of lines available; None shows everything.
        trouble: the current problem, if the overview is stale.
    """
    workers, jobs = _fitting(len(seen.workers), len(seen.jobs), height)
    parts: list[RenderableType] = [_head(seen, trouble), Text()]
    parts.append(_table(WORKERS, seen.workers[:workers], sum(seen.fleet.values())))
    if seen.jobs:
        parts += [Text(), _table(JOBS, seen.jobs[:jobs], seen.states[StateWord.RUNNING])]
    return Group(*parts)


def _fitting(workers: int, jobs: int, height: int | None) -> tuple[int, int]:
    if height is None:
        return workers, jobs
    # Each table has a title and a line before it, and may have a line about omitted rows.
    room = max(height - HEAD_LINES - 6, 2 * LEAST_ROWS)
    few = min(workers, max(LEAST_ROWS, room - min(jobs, room // 2)))
    return few, max(LEAST_ROWS, room - few)


def _head(seen: Overview, trouble: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in _facts(seen):
        grid.add_row(Text(name, style="bold"), value)
    if trouble:
        grid.add_row(Text("trouble", style="bold red"), Text(_plain(trouble)))
    return grid


def _facts(seen: Overview) -> list[tuple[str, Text]]:
    ended = seen.ended
    return [
        ("at", Text(f"{seen.at.astimezone():%H:%M:%S}")),
        ("jobs", _counts(seen.states, "jobs").append(_unapproved(seen))),
        ("oldest", Text(_oldest(seen))),
        ("last hour", _counts({word: n for word, n in ended.items() if n}, "ended")),
        ("throughput", Text(_throughput(seen))),
        ("fleet", _counts(seen.fleet, "workers").append(Text(_fleet(seen)))),
        ("last day", Text(_words(seen.interruptions) or "no interruptions")),
        ("sweeper", _sweeper(seen)),
    ]


def _counts(counts: Mapping[W, int], none: str) -> Text:
    words = [Text(f"{n} {name}", style=STATE_STYLES.get(name, "")) for name, n in counts.items()]
    return Text(", ").join(words or [Text(f"0 {none}")])


def _unapproved(seen: Overview) -> str:
    if not (jobs := seen.awaiting_approval):
        return ""
    return f"; {counted(jobs, 'job')} wait{'s' * (jobs == 1)} for approval"


def _words(counts: Mapping[Reason, int]) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())


def _oldest(seen: Overview) -> str:
    if (oldest := seen.oldest) is None:
        return "nothing waits for a worker"
    held = ", paused" * oldest.paused
    return _plain(
        f"job {oldest.job_id} {oldest.name!r} waits for {duration_text(oldest.waited_s)}{held}"
    )


def _throughput(seen: Overview) -> str:
    ended = [minute.jobs for minute in seen.throughput]
    recent = ended[-RECENT_MIN:]
    bars = sparkline(ended, least=0) if any(ended) else ""
    return f"{sum(recent) / (len(recent) or 1):.1f} a minute in the last {len(recent)}  {bars}"


def _fleet(seen: Overview) -> str:
    gpus = (
        f"; {seen.gpus.busy} of {counted(seen.gpus.there, 'GPU')} in use" if seen.gpus.there else ""
    )
    cost = "" if seen.cost_per_hour is None else f"; {seen.cost_per_hour:.2f} an hour"
    return gpus + cost


def _sweeper(seen: Overview) -> Text:
    sweeper = seen.sweeper
    if sweeper.silent_s is None:
        return Text("no sweeper has run yet", style="red")
    sentence = f"last ran {duration_text(sweeper.silent_s)} ago"
    if not sweeper.healthy:
        return Text(f"{sentence}: is one running?", style="red")
    return Text(sentence + ", leaving leases alone after a start or outage" * sweeper.holds)


def _table(
    columns: Sequence[tuple[str, Callable[[Any], str]]], rows: Sequence[Any], there: int
) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for title, _ in columns:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(read(row)) for _, read in columns))
    if there <= len(rows):
        return table
    return Group(table, Text(f"and {there - len(rows)} more", style="dim"))


def _cell(value: str) -> Text:
    return Text(_plain(value), style=STATE_STYLES.get(value, ""))


def _plain(text: str) -> str:
    # Text from other users must not send control codes to this terminal.
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _percent(value: object) -> str:
    return f"{value:.0f}%" if isinstance(value, int | float) else ""


def _size(mib: object) -> str:
    return size_text(mib * 2**20) if isinstance(mib, int | float) else ""


def _gpu_use(gpus: object, there: int) -> str:
    if not isinstance(gpus, dict):
        return f"{there} there" if there else ""
    looks = [look.get("utilisation") for look in gpus.values() if isinstance(look, dict)]
    known = [use for use in looks if isinstance(use, int | float)]
    return f"{sum(known) / len(known):.0f}% of {len(known)}" if known else ""


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
    console = live.console()
    with console.capture() as text:
        console.print(view(seen))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.get().splitlines()))

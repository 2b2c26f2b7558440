"""`forge schedule`: jobs that are submitted at the times of a cron expression."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from forge_schema.model.job import Schedule

from forge_client.cli.jobs.submit import ConfigOption, FolderArgument, described
from forge_client.cli.options import job_options as o
from forge_client.cli.options.command_line import JobCommand, VerbNames
from forge_client.cli.options.names import schedules
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption, WaitOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago, inline
from forge_client.cli.show.submitted import show_plan, show_planned, show_submitted
from forge_client.connection import connect
from forge_client.project.submit import planned_again, uploaded

app = typer.Typer(
    cls=VerbNames, no_args_is_help=True, help="Jobs submitted at the times of a cron expression."
)
Name = Annotated[str, typer.Argument(help="The schedule's name.", autocompletion=schedules)]
# Each time submits a job of its own.
OF_ONE_JOB = {"idempotency_key", "after", "after_ok", "after_any"}
FIELD = re.compile(r"[\d*/,-]+")


def _last_state(kept: Schedule) -> str:
    return kept.last_state or ""


COLUMNS: list[Column] = [
    ("NAME", lambda s: s.name),
    ("CRON", lambda s: s.cron),
    ("TIMEZONE", lambda s: s.timezone),
    ("NEXT", lambda s: "paused" if s.paused else ago(min(s.next_times, default=None))),
    ("LAST JOB", lambda s: s.last_job_id),
    ("STATE", _last_state),
    ("ERROR", lambda s: s.error),
    ("OWNER", lambda s: s.owner),
]


@app.callback()
def schedule() -> None:
    """Manage jobs that are submitted at the times of a cron expression."""


class Adding(JobCommand):
    """Knows an expression without quotes, which the shell takes apart."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer hides which click it is
        """Refuse a single field, and parse the rest as usual."""
        if args and FIELD.fullmatch(args[0]):
            ctx.fail("the cron expression needs quotes, as in '0 3 * * 1-5'")
        return super().parse_args(ctx, args)


@app.command(cls=Adding)
@o.with_job_options(without=OF_ONE_JOB)
def add(
    context: typer.Context,
    cron: Annotated[
        str, typer.Argument(help="Minute, hour, day of month, month, day of week: '0 3 * * 1-5'.")
    ],
    name: Annotated[str, typer.Option(help="Name of the schedule and of its jobs.")],
    folder: FolderArgument = Path(),
    config: ConfigOption = None,
    timezone: Annotated[
        str, typer.Option(help="Time zone of the expression, e.g. Europe/Berlin.")
    ] = "UTC",
    overlap: Annotated[
        bool,
        typer.Option(
            "--overlap/--no-overlap", help="Submit a job even if the last one is unfinished."
        ),
    ] = True,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a folder and a command at each time of a cron expression.

    The folder is packed and uploaded now: the jobs run what is in it now, until the schedule is
    added again. A schedule of the same name is replaced.
    """
    # What is said of the folder comes after a fault of the times.
    with connect(settings_of(context, o.project_of(context))) as backend:
        backend.check_schedule(name, cron, timezone=timezone)
        settings, whole = described(context, folder, config)
        if dry_run:
            show_plan(settings, whole, form)
            return
        (spec,) = uploaded(backend, whole)
        spec.pop("owner", None)
        before = {(one.owner, one.name) for one in backend.schedules()}
        kept = backend.keep_schedule(name, cron, spec, timezone=timezone, overlap=overlap)
    over = ", saved over the one before" if (kept.owner, kept.name) in before else ""
    narration.say(f"schedule {kept.name!r}{over}: next at {_moment(kept.next_times[0])}")
    output.show_one(kept, form, lambda: print(kept.name))  # noqa: T201 - the data


@app.command("list")
def list_schedules(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List schedules."""
    with backend_of(context) as backend:
        nothing = "no schedules yet; `forge schedule add --name NAME CRON . -- COMMAND` makes one"
        output.show(backend.schedules(), COLUMNS, form, ("OWNER", "TIMEZONE"), nothing=nothing)


@app.command()
def show(context: typer.Context, name: Name, form: FormatOption = Format.TABLE) -> None:
    """Show a schedule: its next times, its last job, and why the last time submitted none."""
    with backend_of(context) as backend:
        kept = backend.schedule(name)
    output.show_one(kept, form, lambda: _print(kept))


@app.command()
def pause(context: typer.Context, name: Name) -> None:
    """Stop submitting a schedule's jobs. Submitted jobs continue."""
    with backend_of(context) as backend:
        backend.pause_schedule(name)
    narration.say(f"schedule {name} paused")


@app.command()
def resume(context: typer.Context, name: Name) -> None:
    """Submit a paused schedule's jobs again, from its next time on."""
    with backend_of(context) as backend:
        backend.pause_schedule(name, paused=False)
    narration.say(f"schedule {name} resumed")


@app.command()
def run(
    context: typer.Context,
    name: Name,
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a schedule's job now, also while it is paused. Its times stay."""
    with backend_of(context) as backend:
        if dry_run:
            show_planned(planned_again(backend, backend.schedule(name).spec), form)
            return
        job_id = backend.run_schedule(name, at=datetime.now(UTC))
        show_submitted(backend, job_id, form, wait=wait)


@app.command()
def remove(context: typer.Context, name: Name, yes: SureOption = False) -> None:
    """Remove a schedule. Submitted jobs continue."""
    with backend_of(context) as backend:
        kept = backend.schedule(name)
        lost = f"what it submits at '{kept.cron}', {kept.timezone}, goes with it"
        ask(f"Remove the schedule {name}?", yes=yes, lost=lost)
        backend.remove_schedule(name)
    narration.say(f"schedule {name} removed")


def _print(kept: Schedule) -> None:
    output.fields([
        ("schedule", kept.name),
        ("owner", kept.owner),
        ("cron", f"{kept.cron}, {kept.timezone}"),
        ("state", "paused" if kept.paused else "active"),
        ("overlap", "" if kept.overlap else "a time is left out if the last job has not ended"),
        *(("next" if n == 0 else " ", at) for n, at in enumerate(_next(kept))),
        ("last time", _moment(kept.last_due_at) if kept.last_due_at else ""),
        ("last job", f"{kept.last_job_id}, {_last_state(kept)}" if kept.last_job_id else ""),
        ("error", kept.error),
        *((field, inline(value)) for field, value in kept.spec.items()),
    ])  # fmt: skip


def _next(kept: Schedule) -> list[str]:
    if kept.paused:
        return []
    return [f"{_moment(at)} ({ago(at)})" for at in kept.next_times]


def _moment(at: datetime) -> str:
    """Return a time as it came, in the time zone of its schedule."""
    return at.isoformat(sep=" ", timespec="minutes")

"""`forge submit`, a folder and a command become a job; and `forge change`, of one that waits."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.job import JobDetail
from forge_schema.model.spec import KEYS

from forge_client.cli.options import job_options as o
from forge_client.cli.options.job_fields import OPTIONS, changes
from forge_client.cli.options.job_options import with_job_options
from forge_client.cli.options.names import JobId, templates
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption, WaitOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format
from forge_client.cli.show.submitted import WARN, ready, show_plan, submit_one
from forge_client.connection import connect_plainly
from forge_client.errors import InvalidInput
from forge_client.project.matrix import left_out
from forge_client.project.request import Request
from forge_client.project.submit import PreparedSubmit
from forge_client.results.endings import waiting_for
from forge_client.settings import Settings

FolderArgument = Annotated[
    Path, typer.Argument(help="Project folder, with an optional forge.toml.")
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--template",
        "--config",
        help="A template of `forge template`; replaces the job in forge.toml.",
        autocompletion=templates,
    ),
]
# The options of a job that cannot be changed.
FIXED = [name for name in OPTIONS if name not in KEYS or not KEYS[name].changes]


@o.with_job_options()
def submit(
    context: typer.Context,
    folder: FolderArgument = Path(),
    config: ConfigOption = None,
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a folder and a command as a job.

    Options override forge.toml (or the template named with --template), which overrides the queue's
    defaults. The job's id is printed on stdout.
    """
    settings, whole = described(context, folder, config)
    if dry_run:
        show_plan(settings, whole, form)
        return
    with connect_plainly(settings) as backend:
        submit_one(backend, whole, form, wait=wait)


def described(
    context: typer.Context, folder: Path, config: str | None
) -> tuple[Settings, PreparedSubmit]:
    """Return the job of a folder and of the options of `forge submit`, not yet sent."""
    project = o.project_of(context)
    base = Request() if config else project.request()
    request = base.changed({**changes(context.params), "command": o.job_command(context)})
    settings = settings_of(context, project)
    if note := "" if config else left_out(project.matrix):
        WARN(note)
    return settings, ready(settings.job_owner, project, [request], folder, config=config)


@with_job_options(without=FIXED, variables=False)
def change(context: typer.Context, job: JobId, form: FormatOption = Format.TABLE) -> None:
    """Change a job that waits. It keeps its place, and its events show the old values."""
    fields = Request().changed(changes(context.params)).fields()
    fields = {name: value for name, value in fields.items() if value != {}}
    if not fields:
        raise InvalidInput(
            "there is nothing to change",
            hint=f"write what to change, as in `forge change {job} --priority 5`",
        )
    with backend_of(context) as backend:
        changed = backend.change(job, fields)
    output.show_one(changed, form, partial(_say_changed, changed))


def _say_changed(job: JobDetail) -> None:
    held = waiting_for(job)
    narration.say(f"job {job.job_id} is changed{f', and {held}' if held else ''}")

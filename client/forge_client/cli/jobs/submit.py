"""`forge submit`, a folder and a command become a job; and `forge change`, of one that waits."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from forge_schema.model.job import JobDetail
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.spec import KEYS

from forge_client.cli.options import job_options as o
from forge_client.cli.options.job_fields import OPTIONS, changes
from forge_client.cli.options.job_options import with_job_options
from forge_client.cli.options.names import JobId, templates
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format
from forge_client.cli.show.submitted import ready, show_submitted
from forge_client.connection import connect, connect_plainly
from forge_client.errors import ClientError, ExitCode
from forge_client.project.bundle import Listing
from forge_client.project.forge_toml import naming_the_file
from forge_client.project.listing import BundleEntry
from forge_client.project.notices import missing
from forge_client.project.request import Request
from forge_client.project.submit import PreparedSubmit, uploaded
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
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the log and exit with the job's exit code.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the job and list its files; submit nothing."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a folder and a command as a job.

    Options override forge.toml (or the template named with --template), which overrides the queue's
    defaults. The job's id is printed on stdout.
    """
    settings, whole = described(context, folder, config)
    if dry_run:
        with naming_the_file(folder, whole.requests):
            _check(settings, whole.specs[0])
        _show_plan(whole.shown()[0], whole.listing, form)
        return
    with connect_plainly(settings) as backend:
        (job_id,) = backend.submit(uploaded(backend, whole))
        show_submitted(backend, job_id, form, wait=wait)


def described(
    context: typer.Context, folder: Path, config: str | None
) -> tuple[Settings, PreparedSubmit]:
    """Return the job of a folder and of the options of `forge submit`, not yet sent."""
    project = o.project_of(context)
    base = Request() if config else project.request()
    request = base.changed({**changes(context.params), "command": o.job_command(context)})
    settings = settings_of(context, project)
    return settings, ready(settings.job_owner, project, [request], folder, config=config)


def _check(settings: Settings, spec: dict[str, Any]) -> None:
    """Have the queue reject what it would reject at a submit, if a queue is configured."""
    if "config_name" in spec:
        narration.say("not checked by the queue, which has the template")
        return
    try:
        with connect(settings) as backend:
            backend.check([spec])
    except ClientError as error:
        if error.exit_code not in {ExitCode.SETUP, ExitCode.UNREACHABLE}:
            raise
        narration.say(f"not checked by the queue: {error.message}")


def _show_plan(spec: dict[str, Any], listing: Listing, form: Format) -> None:
    files = [
        {"path": entry.name, "bytes": entry.size} | ({"link": entry.link} if entry.link else {})
        for entry in _packed(listing)
    ]
    left_out = [{"path": entry.name, "why": entry.why} for entry in listing.left_out]
    plan = {
        "job": spec,
        "files": files,
        "bytes": listing.total_bytes,
        "left_out": left_out,
        "ignored": [asdict(entry) for entry in missing(listing)],
    }
    output.show_one(plan, form, lambda: _print_plan(spec, listing))


def _print_plan(spec: dict[str, Any], listing: Listing) -> None:
    output.fields([(name.removesuffix("_s"), output.inline(value)) for name, value in spec.items()])
    print()  # noqa: T201 - the data
    columns = [("FILE", _named), ("SIZE", lambda e: size_text(e.size))]
    output.show(_packed(listing), columns, Format.TABLE)
    total = size_text(listing.total_bytes)
    narration.say(f"{counted(len(listing.files), 'file')}, {total}; nothing was uploaded")


def _packed(listing: Listing) -> list[BundleEntry]:
    """Return the files and links; folders are seen by what is in them."""
    return [entry for entry in listing.entries if not entry.folder or entry.link]


def _named(entry: BundleEntry) -> str:
    return f"{entry.name} -> {entry.link}" if entry.link else entry.name


@with_job_options(without=FIXED, variables=False)
def change(context: typer.Context, job: JobId, form: FormatOption = Format.TABLE) -> None:
    """Change a job that waits. It keeps its place, and its events show the old values."""
    fields = Request().changed(changes(context.params)).fields()
    fields = {name: value for name, value in fields.items() if value != {}}
    if not fields:
        raise ClientError(
            "there is nothing to change",
            hint=f"write what to change, as in `forge change {job} --priority 5`",
            code="option_invalid",
        )
    with backend_of(context) as backend:
        changed = backend.change(job, fields)
    output.show_one(changed, form, partial(_say_changed, changed))


def _say_changed(job: JobDetail) -> None:
    held = waiting_for(job)
    narration.say(f"job {job.job_id} is changed{f', and {held}' if held else ''}")

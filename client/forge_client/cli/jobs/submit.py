"""`forge submit`: a folder and a command become a job."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from forge_schema.model.quantities import counted, size_text

from forge_client.backend import Backend
from forge_client.cli.options import job_options as o
from forge_client.cli.options.completion import templates
from forge_client.cli.options.job_command import command_of
from forge_client.cli.options.session import settings_of
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format, FormatOption
from forge_client.cli.show.submitted import (
    show_submitted,
    tell,
    tell_command,
    tell_environment,
    tell_images,
    tell_left_out,
)
from forge_client.connection import connect
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode
from forge_client.project.bundle import Listing, scan
from forge_client.project.forge_toml import naming_the_file
from forge_client.project.image_tar import ImageTar
from forge_client.project.listing import Entry
from forge_client.project.notices import missing
from forge_client.project.request import Request, no_command
from forge_client.project.submission import (
    LIMIT,
    configured,
    specs,
    upload,
    upload_images,
    with_images,
    with_packages,
)
from forge_client.settings import Settings

FolderArgument = Annotated[
    Path, typer.Argument(help="Project folder, with an optional forge.toml.")
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        help="Saved job config; replaces the job in forge.toml.", autocompletion=templates
    ),
]


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

    Options override forge.toml (or the config named with --config), which overrides the queue's
    defaults. The job's id is printed on stdout.
    """
    ready = prepared(context, folder, config)
    if dry_run:
        with naming_the_file(ready.folder, ready.request):
            _check(ready.settings, ready.spec)
        _show_plan({**ready.spec, **ready.shown}, ready.listing, form)
        return
    with connect(ready.settings) as backend:
        (job_id,) = backend.submit([uploaded(backend, ready)])
        show_submitted(backend, job_id, form, wait=wait)


@dataclass(frozen=True)
class Prepared:
    """A folder and a command line, read and not yet sent.

    With a saved config, the fields of the `spec` are not yet laid over its own. What is `shown` of
    the job apart from that is not the queue's to check.
    """

    folder: Path
    listing: Listing
    limit: int
    request: Request
    images: list[ImageTar]
    config: str | None
    settings: Settings
    spec: dict[str, Any]
    shown: dict[str, Any]


def prepared(context: typer.Context, folder: Path, config: str | None) -> Prepared:
    """Read the folder and the options of a command that has those of `forge submit`."""
    project = o.project_of(context)
    listing = scan(folder, include=project.include)
    base = Request() if config else project.request()
    request = base.changed({**o.changes(context.params), "command": command_of(context)})
    tell_left_out(listing, [request])
    (request,), images = with_images([request], bar=narration.transfer)
    tell_command(request, listing)
    settings = settings_of(context, project)
    most = project.limit or LIMIT
    if config:
        spec, shown = _unsent(config, request), {}
    else:
        if not request.command:
            raise no_command()
        whole = with_packages([request], listing)
        tell_environment(whole)
        spec = specs(whole.requests, owner=settings.job_owner, folder=folder)[0]
        listing, shown = whole.listing, whole.shown(spec)
    return Prepared(folder, listing, most, request, images, config, settings, spec, shown)


def uploaded(backend: Backend, ready: Prepared) -> dict[str, Any]:
    """Have the queue check a job, upload what it needs, and return it."""
    spec, shown, listing = ready.spec, ready.shown, ready.listing
    if ready.config:
        kept = backend.template(ready.config)
        whole = with_packages([ready.request], listing, kept.spec)
        tell_environment(whole)
        (request,), listing = whole.requests, whole.listing
        spec = configured(request, kept, owner=ready.settings.job_owner, folder=ready.folder)
        shown = whole.shown(spec)
    with naming_the_file(ready.folder, ready.request):
        backend.check([spec])
    stored = upload(backend, listing, limit=ready.limit, bar=narration.transfer)
    tell(stored)
    tell_images(upload_images(backend, ready.images, bar=narration.transfer))
    return {**spec, **shown, **stored.fields}


def _unsent(config: str, request: Request) -> dict[str, Any]:
    # Only the queue knows the content of a saved config.
    return {"config_name": config, **request.fields()}


def _check(settings: Settings, spec: dict[str, Any]) -> None:
    """Have the queue reject what it would reject at a submit, if a queue is configured."""
    if "config_name" in spec:
        narration.say("not checked by the queue, where the config is kept")
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
        {"path": one.name, "bytes": one.size} | ({"link": one.link} if one.link else {})
        for one in _packed(listing)
    ]
    left_out = [{"path": one.name, "why": one.why} for one in listing.left_out]
    plan = {
        "job": spec,
        "files": files,
        "bytes": listing.total_bytes,
        "left_out": left_out,
        "ignored": [asdict(one) for one in missing(listing)],
    }
    output.show_one(plan, form, lambda: _print_plan(spec, listing))


def _print_plan(spec: dict[str, Any], listing: Listing) -> None:
    output.fields([(name.removesuffix("_s"), output.inline(value)) for name, value in spec.items()])
    print()  # noqa: T201 - the data
    columns = [("FILE", _named), ("SIZE", lambda e: size_text(e.size))]
    output.show(_packed(listing), columns, Format.TABLE)
    total = size_text(listing.total_bytes)
    narration.say(f"{counted(len(listing.files), 'file')}, {total}; nothing was uploaded")


def _packed(listing: Listing) -> list[Entry]:
    """Return the files and links; folders are seen by what is in them."""
    return [one for one in listing.entries if not one.folder or one.link]


def _named(entry: Entry) -> str:
    return f"{entry.name} -> {entry.link}" if entry.link else entry.name

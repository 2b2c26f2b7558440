"""What an owner keeps by name: `forge template`, with `forge schema` of it, and `forge input`."""

from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.job import RegisteredInput

from forge_client.cli.options import names
from forge_client.cli.options.command_line import JobCommand, VerbNames
from forge_client.cli.options.job_fields import INSTALLING, PACKING, changes
from forge_client.cli.options.job_options import job_command, with_job_options
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago, inline
from forge_client.connection import connect
from forge_client.project.forge_toml import Project
from forge_client.project.request import nothing_to_keep
from forge_client.project.scan import require_folder
from forge_client.project.schema import text

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Templates: jobs kept by name.")
Name = Annotated[str, typer.Argument(help="The template's name.", autocompletion=names.templates)]

COLUMNS: list[Column] = [
    ("NAME", lambda t: t.name),
    ("COMMAND", lambda t: inline(t.spec.get("command"))),
    ("QUEUE", lambda t: t.spec.get("queue")),
    ("UPDATED", lambda t: ago(t.updated_at)),
]
inputs_app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Sources of inputs under names.")


@app.callback()
def templates() -> None:
    """Manage templates for `forge submit --template NAME`."""


@app.command("list")
def list_templates(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List your templates."""
    with backend_of(context) as backend:
        nothing = "no templates yet; `forge template keep NAME . -- COMMAND` saves one"
        output.show(backend.templates(), COLUMNS, form, nothing=nothing)


@app.command()
def show(context: typer.Context, name: Name, form: FormatOption = Format.TABLE) -> None:
    """Show a template."""
    with backend_of(context) as backend:
        kept = backend.template(name)
    fields = [(field, inline(value)) for field, value in kept.spec.items()]
    output.show_one(kept, form, lambda: output.fields(fields))


# Each submit has its own, or chooses them by the folder that it packs.
OF_ONE_SUBMIT = {"idempotency_key", "after", "after_ok", "after_any", "image_tar"}
OF_ONE_SUBMIT |= {*PACKING, *INSTALLING}


@app.command(cls=JobCommand)
@with_job_options(without=OF_ONE_SUBMIT, variables=False)
def keep(
    context: typer.Context,
    name: Name,
    folder: Annotated[
        Path, typer.Argument(help="Project folder whose forge.toml to save.")
    ] = Path(),
) -> None:
    """Save the job of a folder's forge.toml under a name, replacing any before.

    Options, and a command after `--`, override what is in forge.toml. The folder is not saved.
    """
    require_folder(folder)
    project = Project.read(folder)
    given = {key: value for key, value in changes(context.params).items() if key != "name"}
    request = project.request().changed({**given, "command": job_command(context)})
    spec = {field: value for field, value in request.fields().items() if field != "idempotency_key"}
    if not any(spec.values()):
        raise nothing_to_keep(folder)
    with connect(settings_of(context, project)) as backend:
        there = any(kept.name == name for kept in backend.templates())
        backend.keep_template(name, spec)
    saved = "saved over the one before" if there else "saved"
    narration.say(f"{saved} as {name}; use it with `forge submit --template {name}`")


@app.command()
def remove(context: typer.Context, name: Name, yes: SureOption = False) -> None:
    """Remove a template."""
    with backend_of(context) as backend:
        ask(f"Remove the template {backend.template(name).name}?", yes=yes)
        backend.remove_template(name)
    narration.say(f"template {name} removed")


def schema() -> None:
    """Print the JSON Schema of forge.toml, by which editors complete and check the file."""
    print(text(), end="")  # noqa: T201 - the data


def _source(kept: RegisteredInput) -> str:
    return kept.source


INPUT_COLUMNS: list[Column] = [
    ("NAME", lambda row: row.name),
    ("SOURCE", _source),
    ("UPDATED", lambda row: ago(row.updated_at)),
]


@inputs_app.callback()
def inputs() -> None:
    """Register sources of inputs, for `forge submit --input data=NAME`."""


@inputs_app.command("list")
def list_inputs(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List your registered inputs."""
    with backend_of(context) as backend:
        nothing = "no registered inputs yet; `forge input add NAME SOURCE` registers one"
        output.show(backend.inputs(), INPUT_COLUMNS, form, nothing=nothing)


@inputs_app.command("add")
def add_input(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.", autocompletion=names.inputs)],
    source: Annotated[str, typer.Argument(help="Its source, as in s3://bucket/set.")],
) -> None:
    """Register a source under a name, replacing any before. Jobs submitted earlier keep theirs."""
    with backend_of(context) as backend:
        backend.keep_input(name, source)
    narration.say(f"registered as {name}; use it with `forge submit --input data={name}`")


@inputs_app.command("remove")
def remove_input(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.", autocompletion=names.inputs)],
    yes: SureOption = False,
) -> None:
    """Remove a registered input. Jobs submitted with it keep its source."""
    with backend_of(context) as backend:
        if any(row.name == name for row in backend.inputs()):
            ask(f"Remove the registered input {name}?", yes=yes)
        backend.remove_input(name)
    narration.say(f"registered input {name} removed")

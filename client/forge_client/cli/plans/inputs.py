"""`forge input`: the sources of inputs, registered under names."""

from typing import Annotated

import typer
from forge_schema.model.job import RegisteredInput

from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Sources of inputs under names.")


def _source(kept: RegisteredInput) -> str:
    return kept.source


COLUMNS: list[Column] = [
    ("NAME", lambda row: row.name),
    ("SOURCE", _source),
    ("UPDATED", lambda row: ago(row.updated_at)),
]


@app.callback()
def inputs() -> None:
    """Register sources of inputs, for `forge submit --input data=NAME`."""


@app.command("list")
def list_inputs(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List your registered inputs."""
    with backend_of(context) as backend:
        nothing = "no registered inputs yet; `forge input add NAME SOURCE` registers one"
        output.show(backend.inputs(), COLUMNS, form, nothing=nothing)


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.", autocompletion=names.inputs)],
    source: Annotated[str, typer.Argument(help="Its source, as in s3://bucket/set.")],
) -> None:
    """Register a source under a name, replacing any before. Jobs submitted earlier keep theirs."""
    with backend_of(context) as backend:
        backend.keep_input(name, source)
    narration.say(f"registered as {name}; use it with `forge submit --input data={name}`")


@app.command()
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.", autocompletion=names.inputs)],
) -> None:
    """Remove a registered input. Jobs submitted with it keep its source."""
    with backend_of(context) as backend:
        backend.remove_input(name)
    narration.say(f"registered input {name} removed")

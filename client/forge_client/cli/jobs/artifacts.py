"""`forge artifacts`: the files in a job's output folder."""

from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import size_text
from forge_schema.model.reading import files_and_links

from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, in_a_line
from forge_client.downloads import download_all

COLUMNS: list[Column] = [
    ("PATH", lambda a: in_a_line(a.path if a.target is None else f"{a.path} -> {a.target}")),
    ("SIZE", lambda a: size_text(a.bytes) if a.target is None else "link"),
    ("SHA256", lambda a: a.sha256),
]


def artifacts(
    context: typer.Context,
    job: JobId,
    to: Annotated[
        Path | None, typer.Option(help="Fetch them into this folder, verified.", file_okay=False)
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List or download the files in a job's output folder."""
    with backend_of(context) as backend:
        backend.job(job)
        files = backend.artifacts(job)
        if not files:
            narration.say(f"job {job} has no artifacts; a job writes them to $FORGE_OUTPUT_DIR")
        elif to is not None:
            total = sum(file.bytes for file in files if file.target is None)
            with narration.transfer("downloading", total) as progress:
                download_all(backend, files, to, progress)
            narration.say(f"{files_and_links(files)}, {size_text(total)}, in {to}")
    if files or form is not Format.TABLE:
        output.show(files, COLUMNS, form, ("SHA256",))

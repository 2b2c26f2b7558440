"""`forge artifacts` and `forge checkpoints`: the files that a job has stored."""

from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import duration_text, size_text
from forge_schema.model.reading import files_and_links

from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.job_details import source
from forge_client.cli.show.output import Column, Format, in_a_line
from forge_client.downloads import download_all

ARTIFACTS: list[Column] = [
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
        found = backend.checkpoints(job)
    if not found:
        yet = "" if detail.terminal else " yet"
        start = f"; it starts from {source(detail)}" if source(detail) else ""
        narration.say(f"job {job} has no checkpoint{yet}{start}")
    steps = STEP if any(one.step is not None for one in found) else []
    output.show(found, [*NAME, *steps, *CHECKPOINTS], form)

"""`forge checkpoints`: the checkpoints that a job has stored."""

import typer
from forge_schema.model.quantities import duration_text, size_text

from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.job_details import source
from forge_client.cli.show.output import Column, Format

NAME: list[Column] = [("CHECKPOINT", lambda c: c.name)]
STEP: list[Column] = [("STEP", lambda c: "" if c.step is None else c.step)]
COLUMNS: list[Column] = [
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
    output.show(found, [*NAME, *steps, *COLUMNS], form)

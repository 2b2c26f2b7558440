"""`forge code`, `forge diff` and `forge rerun`: what a job ran."""

from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.job import JobDetail
from forge_schema.model.quantities import counted

from forge_client.cli.options import job_options as o
from forge_client.cli.options.job_fields import INSTALLING, PACKING, changes
from forge_client.cli.options.names import JobId, checkpoint
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import DryRunOption, FormatOption, WaitOption
from forge_client.cli.show import narration
from forge_client.cli.show.output import Format
from forge_client.cli.show.standing import no_patch_text, revision_text
from forge_client.cli.show.submitted import show_planned, show_submitted
from forge_client.code import differences, fetch, listed_packages, uncommitted
from forge_client.project.submission import repeated
from forge_client.project.submit import planned_again
from forge_client.project.written import of_job


def code(
    context: typer.Context,
    job: JobId,
    to: Annotated[
        Path | None, typer.Option(help="Unpack it into this folder.", file_okay=False)
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what was not committed in git.")
    ] = False,
    packages: Annotated[
        bool, typer.Option("--packages", help="Print the list of packages that it installs.")
    ] = False,
) -> None:
    """Fetch the code of a job, as it was submitted."""
    with backend_of(context) as backend:
        status = backend.job(job)
        if revision := revision_text(status.spec):
            narration.say(f"revision {revision}")
        if to is None and not (diff or packages):
            narration.say(f"`forge code {job} --to FOLDER` fetches its files")
        if diff:
            patch = uncommitted(backend, status)
            typer.echo(patch, nl=False)
            if not patch:
                narration.say(f"job {job} has no patch: {no_patch_text(status.spec)}")
        if packages:
            listed = listed_packages(backend, status)
            print(listed, end="")  # noqa: T201 - the data
            if not listed:
                narration.say(f"job {job} brought no list of packages")
        if to is not None:
            fetch(backend, status, to)
            files = sum(path.is_file() for path in to.rglob("*"))
            narration.say(f"{counted(files, 'file')} in {to}")


def diff(
    context: typer.Context,
    job: JobId,
    other: Annotated[
        str, typer.Argument(metavar="[other]", help="Another job, or a folder.")
    ] = ".",
) -> None:
    """Compare the code of a job with that of another one, or with a folder."""
    with backend_of(context) as backend:
        second = Path(other) if Path(other).exists() else backend.job(backend.job_id(other))
        lines = list(differences(backend, backend.job(job), second))
    for line in lines:
        print(line)  # noqa: T201 - the data
    if not lines:
        narration.say(f"no difference between the code of job {job} and {_named(second)}")


def _named(second: JobDetail | Path) -> str:
    return f"the folder {second}" if isinstance(second, Path) else f"that of job {second.job_id}"


# Not by variables: what is not given stays as it was. Nothing is uploaded.
@o.with_job_options(without={*PACKING, *INSTALLING, "image_tar"}, variables=False)
def rerun(
    context: typer.Context,
    job: JobId,
    from_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-checkpoint",
            metavar="[JOB:]ATTEMPT.NUMBER",
            help="Start from this checkpoint of the job, or of another one.",
        ),
    ] = None,
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a job again: the same code, command and options, but for what is given."""
    changed = {**changes(context.params), "command": o.job_command(context)}
    if from_checkpoint:
        changed["from_checkpoint"] = checkpoint(context, of_job(job, from_checkpoint))
    with backend_of(context) as backend:
        again = repeated(backend.request(job), changed)
        if dry_run:
            show_planned(planned_again(backend, again), form)
            return
        (job_id,) = backend.submit([again])
        show_submitted(backend, job_id, form, wait=wait)

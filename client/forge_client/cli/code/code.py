"""`forge code`, `forge diff` and `forge rerun`: what a job ran."""

import difflib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import counted

from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.show import narration
from forge_client.cli.show.standing import revision_text
from forge_client.cli.show.submitted import tell_job, tell_nobody
from forge_client.cli.show.waiting import wait_for
from forge_client.code import fetch, uncommitted, unpacked_code
from forge_client.project.bundle import scan


def code(
    context: typer.Context,
    job: JobId,
    to: Annotated[
        Path | None, typer.Option(help="Unpack it into this folder.", file_okay=False)
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what was not committed in git.")
    ] = False,
) -> None:
    """Fetch the code of a job, as it was submitted."""
    with backend_of(context) as backend:
        found = backend.job(job)
        if revision := revision_text(found.spec):
            narration.say(f"revision {revision}")
        if diff:
            print(uncommitted(backend, found), end="")  # noqa: T201 - the data
        if to is not None:
            fetch(backend, found, to)
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
    with backend_of(context) as backend, ExitStack() as stack:
        first = stack.enter_context(unpacked_code(backend, backend.job(job)))
        second = Path(other)
        if not second.exists():
            job_id = backend.job_id(other)
            second = stack.enter_context(unpacked_code(backend, backend.job(job_id)))
        for line in differences(first, second):
            print(line)  # noqa: T201 - the data


def rerun(
    context: typer.Context,
    job: JobId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the log and exit with the job's exit code.")
    ] = False,
) -> None:
    """Submit a job again: the same code, command and options."""
    with backend_of(context) as backend:
        (job_id,) = backend.submit([backend.request(job)])
        tell_job(backend.job(job_id))
        tell_nobody(backend, job_id)
        if wait:
            raise typer.Exit(wait_for(backend, job_id))
        print(job_id)  # noqa: T201 - the data


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the lines of a unified diff of two folders, as bundles see them."""
    files = [{one.name: one.path for one in scan(root).files} for root in (first, second)]
    for name in sorted({*files[0], *files[1]}):
        before, after = (_lines(one.get(name)) for one in files)
        if before is None or after is None:
            if files[0].get(name, Path()).read_bytes() != files[1].get(name, Path()).read_bytes():
                yield f"Binary file {name} differs"
        else:
            sides = zip("ab", files, strict=True)
            names = [f"{side}/{name}" if name in one else "/dev/null" for side, one in sides]
            yield from difflib.unified_diff(before, after, names[0], names[1], lineterm="")


def _lines(path: Path | None) -> list[str] | None:
    """Return a file's lines; none for one that is absent, None for one that is not text."""
    if path is None:
        return []
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return None

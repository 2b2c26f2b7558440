"""`forge logs`: what a job wrote, wherever and however often it ran."""

from typing import Annotated

import typer

from forge_client.backend import Backend
from forge_client.commands.session import JobId, backend_of
from forge_client.commands.waiting import Teller, wait_for
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode
from forge_client.log_reader import LogReader


def logs(
    context: typer.Context,
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt's output.", min=1)] = None,
) -> None:
    """Print a job's output: all attempts in order, byte for byte on stdout."""
    with backend_of(context) as backend:
        if follow:
            code = wait_for(backend, job, attempt=attempt)
            raise typer.Exit(code if code == ExitCode.INTERRUPTED else ExitCode.OK)
        _print(backend, job, attempt)


def _print(backend: Backend, job: int, attempt: int | None) -> None:
    teller = Teller(backend)
    teller.known = backend.job(job)
    if attempt is not None and attempt > teller.known.attempt:
        raise ClientError(
            f"job {job} has had no attempt {attempt}",
            hint=f"`forge show {job}` lists its attempts",
            code="attempt_unknown",
            exit_code=ExitCode.NOT_FOUND,
        )
    for piece in LogReader(backend, job, attempt=attempt).new(final=True):
        teller.piece(piece)
    teller.end_line()

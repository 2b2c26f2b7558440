"""`forge cancel`, `retry` and `preempt`: actions on jobs."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from forge_client.backend import Backend
from forge_client.cli.options.job_names import JobId, JobIds, OptionalJobIds
from forge_client.cli.options.session import backend_of
from forge_client.cli.show import narration
from forge_client.cli.show.endings import waiting_for
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode

ANSWERS = {
    "cancelled": "job {} is cancelled",
    "running": "job {} is asked to stop; its worker ends it",
}


def cancel(
    context: typer.Context,
    jobs: OptionalJobIds = None,
    sweep: Annotated[
        str | None, typer.Option(help="Cancel all unfinished jobs of this sweep.")
    ] = None,
) -> None:
    """Cancel jobs. Running jobs get SIGTERM, then SIGKILL after their grace period."""
    if not jobs and sweep is None:
        raise ClientError(
            "there is nothing to cancel",
            hint="name jobs by their ids, or a benchmark by --sweep",
            code="option_invalid",
        )
    with backend_of(context) as backend:
        if sweep is not None:
            done = backend.findings.cancel_sweep(sweep)
            narration.say(f"{sweep}: {done.cancelled} cancelled, {done.running} asked to stop")
        _each(jobs or [], partial(_cancel, backend))


def retry(context: typer.Context, jobs: JobIds) -> None:
    """Queue failed jobs again, with all retries restored."""
    with backend_of(context) as backend:
        _each(jobs, partial(_retry, backend))


def _cancel(backend: Backend, job: int) -> None:
    state = backend.cancel(job)
    if state not in ANSWERS:
        raise ClientError(
            f"job {job} has already ended: it is {state}",
            hint=f"`forge show {job}` shows how it ended",
            code="already_over",
        )
    narration.say(ANSWERS[state].format(job))


def _retry(backend: Backend, job: int) -> None:
    backend.retry(job)
    status = backend.statuses([job]).get(job)
    held = waiting_for(status) if status else ""
    narration.say(f"job {job} is queued again{f', and {held}' if held else ''}")


def _each(jobs: list[int], act: Callable[[int], None]) -> None:
    """Act on every job, even after one is refused, then report all refusals."""
    refused: list[ClientError] = []
    for job in jobs:
        try:
            act(job)
        except ClientError as error:
            if error.exit_code not in {ExitCode.NOT_FOUND, ExitCode.CONFLICT}:
                raise
            refused.append(error)
    if refused:
        message = "; ".join(error.message for error in refused)
        first = refused[0]
        raise ClientError(message, hint=first.hint, code=first.code, exit_code=first.exit_code)


def preempt(context: typer.Context, job: JobId) -> None:
    """Preempt a running job, as a spot notice would. It resumes elsewhere."""
    with backend_of(context) as backend:
        if not backend.preempt(job):
            raise ClientError(
                f"job {job} is not running, or has already been asked to end",
                hint=f"`forge show {job}` shows its state",
                code="not_running_job",
            )
        narration.say(f"job {job}: preemption requested")

"""`forge cancel`, `retry` and `preempt`: actions on jobs."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from forge_schema.model.quantities import counted
from forge_schema.model.states import StateWord
from forge_schema.model.stored import checkpoint_name

from forge_client.backend import Backend
from forge_client.cli.options.names import JobId
from forge_client.cli.options.selection import (
    Selection,
    YesOption,
    confirm,
    in_batches,
    is_query,
    meant,
    selected,
    wider,
)
from forge_client.cli.options.session import backend_of
from forge_client.cli.show import narration
from forge_client.cli.show.acting import cancel_one, each_of
from forge_client.errors import ClientError, InvalidInput
from forge_client.project.written import own_checkpoint
from forge_client.results.endings import waiting_for
from forge_client.results.names import whole_name

UNFINISHED = [word for word in StateWord if not word.terminal]


def cancel(
    context: typer.Context,
    jobs: Selection = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Cancel all unfinished jobs of this sweep; the start of its name will do."
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Cancel jobs. Running jobs get SIGTERM, then SIGKILL after their grace period."""
    if not jobs and sweep is None:
        raise InvalidInput(
            "there is nothing to cancel",
            hint="name jobs, or describe them: state:running name:resnet*",
        )
    with backend_of(context) as backend:
        if sweep is not None:
            _cancel_sweep(backend, sweep, yes=yes)
        if is_query(jobs or ()):
            _cancel_selected(backend, jobs or (), yes=yes)
        else:
            each_of(
                meant(backend, jobs or (), "cancel", UNFINISHED, yes=yes),
                partial(cancel_one, backend),
            )


def retry(
    context: typer.Context,
    jobs: Selection = None,
    from_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-checkpoint",
            metavar="ATTEMPT.NUMBER",
            help="Begin with this checkpoint of the job, not the newest.",
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Queue failed jobs again, with all retries restored."""
    if not jobs:
        raise InvalidInput(
            "there is nothing to retry", hint="name jobs, or describe them: state:failed since:1d"
        )
    with backend_of(context) as backend:
        if from_checkpoint and (is_query(jobs) or len(jobs) > 1):
            raise InvalidInput(
                "--from-checkpoint is for one job",
                hint="name that job alone; the others begin with their newest checkpoints",
            )
        if is_query(jobs):
            _retry_selected(backend, jobs, yes=yes)
        else:
            each_of(
                meant(backend, jobs, "retry", [StateWord.FAILED], yes=yes),
                partial(_retry, backend, from_checkpoint=from_checkpoint),
            )


def _cancel_selected(backend: Backend, words: Sequence[str], *, yes: bool) -> None:
    jobs = selected(backend, words, UNFINISHED)
    if not jobs:
        more = wider(backend, words, states=UNFINISHED)
        narration.say(f"no unfinished job matches{more}; nothing to cancel")
        return
    confirm(jobs, "cancel", yes=yes)
    counts = in_batches(backend.cancel_all, jobs)
    over = f", {counts['over']} had already ended" if counts["over"] else ""
    narration.say(f"{_cancelled(counts['cancelled'], counts['running'])}{over}")


def _cancel_sweep(backend: Backend, start: str, *, yes: bool) -> None:
    sweep = whole_name(backend, start, None)
    if sweep != start:
        jobs = selected(backend, ["owner:me", f"sweep:{sweep}"], UNFINISHED)
        if not jobs:
            narration.say(f"{sweep} has no unfinished job; nothing to cancel")
            return
        confirm(jobs, "cancel", yes=yes)
    done = backend.findings.cancel_sweep(sweep)
    narration.say(f"{sweep}: {_cancelled(done.cancelled, done.running)}")


def _cancelled(at_once: int, running: int) -> str:
    return f"{at_once} cancelled, {running} asked to stop"


def _retry_selected(backend: Backend, words: Sequence[str], *, yes: bool) -> None:
    jobs = selected(backend, words, [StateWord.FAILED])
    if not jobs:
        more = wider(backend, words, states=[StateWord.FAILED])
        narration.say(f"no failed job matches{more}; nothing to retry")
        return
    confirm(jobs, "retry", yes=yes)
    counts = in_batches(backend.retry_all, jobs)
    others = counts["unfinished"] + counts["over"]
    had = f", {others} had been retried meanwhile" if others else ""
    narration.say(f"{counted(counts['retried'], 'job')} queued again{had}")


def _retry(backend: Backend, job: int, *, from_checkpoint: str | None = None) -> None:
    chosen = own_checkpoint(job, from_checkpoint) if from_checkpoint else None
    backend.retry(job, checkpoint=chosen)
    status = backend.statuses([job]).get(job)
    held = waiting_for(status) if status else ""
    place = f" from checkpoint {checkpoint_name(*chosen)}" if chosen else ""
    narration.say(f"job {job} is queued again{place}, with the code of its submission")
    if held:
        narration.say(f"it {held}")


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

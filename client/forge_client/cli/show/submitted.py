"""Submits a folder's jobs, and reports the upload, their resources and matching workers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forge_schema.model.quantities import counted, duration_text, size_text
from forge_schema.model.states import in_state

from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, brief, inline
from forge_client.cli.show.standing import resources
from forge_client.cli.show.waiting import wait_and_show
from forge_client.errors import ClientError, Misconfigured, Unreachable
from forge_client.project.submit import (
    DryRun,
    Narrator,
    Parcel,
    PlannedFile,
    PreparedSubmit,
    packed,
    planned,
    prepared,
    tell_packages,
    unchecked,
    uploaded,
)

if TYPE_CHECKING:
    from forge_schema.model.job import JobDetail

    from forge_client.backend import Backend
    from forge_client.project.forge_toml import Project
    from forge_client.project.request import Request
    from forge_client.settings import Settings


def show_submitted(backend: Backend, job_id: int, form: Format, *, wait: bool) -> None:
    """Tell of a job that was submitted just now, and print its id; or follow it to its end.

    Raises:
        SystemExit: with the code for how it ended.
    """
    status = _submitted(backend, job_id)
    tell_job(status)
    tell_nobody(backend, job_id)
    if wait:
        sys.exit(wait_and_show(backend, job_id, form))
    output.show_one(status, form, lambda: print(job_id))  # noqa: T201 - the data


def _submitted(backend: Backend, job_id: int) -> JobDetail:
    try:
        return backend.job(job_id)
    except ClientError as error:
        # Without the id, the user would submit the job again.
        error.message = f"job {job_id} is submitted, but then {error.message}"
        raise


def show_plan(settings: Settings, whole: PreparedSubmit, form: Format) -> None:
    """Show jobs and their files, checked by the queue if one answers. Nothing is stored."""
    from forge_client.connection import connect  # noqa: PLC0415 - only for this

    try:
        with connect(settings) as backend:
            plan = planned(backend, whole)
    except (Misconfigured, Unreachable) as error:
        tell_packages(whole)
        narration.say(f"not checked by the queue: {error.message}")
        plan = unchecked(whole, {})
    show_planned(plan, form)


def show_planned(plan: DryRun, form: Format) -> None:
    """Show what would be submitted: the first job, what the others differ in, and the files."""
    answer = {
        "job": plan.jobs[0],
        **({"jobs": plan.jobs} if plan.jobs[1:] else {}),
        "files": [
            {name: value for name, value in vars(file).items() if value is not None}
            for file in plan.files
        ],
        "bytes": plan.bytes,
        "left_out": [vars(entry) for entry in plan.left_out],
        "ignored": [vars(entry) for entry in plan.ignored],
    }
    output.show_one(answer, form, lambda: _print_plan(plan))


def _print_plan(plan: DryRun) -> None:
    jobs = plan.jobs
    output.fields([(name.removesuffix("_s"), inline(value)) for name, value in jobs[0].items()])
    if jobs[1:]:
        print()  # noqa: T201 - the data
        columns: list[Column] = [
            ("PARAMETERS", lambda job: inline(job.get("parameters"))),
            ("COMMAND", lambda job: brief(shlex.join(job["command"]))),
        ]
        output.show(jobs, columns, Format.TABLE)
    if plan.files:
        print()  # noqa: T201 - the data
        output.show(plan.files, [("FILE", _named), ("SIZE", _size)], Format.TABLE)
    many = f"{counted(len(jobs), 'job')}, " * bool(jobs[1:])
    sizes = f"{counted(len(plan.files), 'file')}, {size_text(plan.bytes)}"
    narration.say(f"{many}{sizes}; nothing was uploaded")


def _named(file: PlannedFile) -> str:
    return f"{file.path} -> {file.link}" if file.link else file.path


def _size(file: PlannedFile) -> str:
    return size_text(file.bytes)


# On the screen, what is likely to be a mistake is yellow.
WARN = partial(narration.say, style="yellow")
NARRATOR = Narrator(narration.say, warn=WARN, missing=WARN, bar=narration.transfer)


def ready(
    owner: str | None,
    project: Project,
    requests: Sequence[Request],
    folder: Path | None,
    *,
    config: str | None = None,
    files: Callable[[Parcel], Parcel] = lambda parcel: parcel,
) -> PreparedSubmit:
    """Complete jobs as far as it needs no queue; without a folder, they have no code.

    `files` adds others to those of the folder.

    Raises:
        ClientError: the folder or a job is invalid.
    """
    narrator = NARRATOR
    parcel = None
    if folder:
        parcel = files(packed(project, folder, requests, config=config, narrator=narrator))
    return prepared(requests, parcel, owner=owner, narrator=narrator)


def send(backend: Backend, whole: PreparedSubmit) -> list[int]:
    """Submit jobs in one call and return their ids.

    Warns if no online worker can run the first of them.

    Raises:
        ClientError: a job is refused, or nothing answers.
    """
    ids = backend.submit(uploaded(backend, whole))
    # One check for all of them: jobs of one call usually need the same resources.
    tell_nobody(backend, ids[0])
    return ids


# Limits that only an admin ends, at least today.
BY_AN_ADMIN = {"approval", "queue_paused", "budget", "team_budget"}
# Messages for the outlooks in `explain` of a job that no worker takes.
NOBODY = {
    "no_worker": "no online worker can run it",
    "unfit": "no online worker can run it",
    "unavailable": "no worker that can run it is taking jobs now",
}


def tell_job(job: JobDetail) -> None:
    """Say that a job was submitted, and with which resources."""
    # If a job that it needs has failed, it is cancelled at once.
    detail = (job.detail if job.state == "cancelled" else None) or resources(job)
    # In its unit: a bare number is of seconds.
    if job.timeout_s:
        detail += f"{', ' if detail else ''}at most {duration_text(job.timeout_s)}"
    narration.say(
        f"job {job.job_id} {job.name!r} {in_state(job.state)}{f': {detail}' if detail else ''}"
    )


def tell_nobody(backend: Backend, job_id: int) -> None:
    """Warn if a job waits for an admin, or no online worker can run it, as in `forge explain`."""
    try:
        explanation = backend.explain(job_id, workers=0)
    except ClientError:
        return  # it is submitted, whatever becomes of this look
    for limit in explanation.limits:
        if limit.code in BY_AN_ADMIN:
            narration.say(limit.text, style="yellow")
    if near := explanation.near_queue:
        narration.say(f"queue {explanation.queue} is new; did you mean {near}?", style="yellow")
    sentence = NOBODY.get(explanation.outlook)
    if sentence is None:
        return
    if explanation.nodes > 1 or explanation.text.startswith("no online worker"):
        sentence = explanation.text
    advice = f": {explanation.remedies[0].text}" if explanation.remedies else ""
    narration.say(f"{sentence}{advice} (details: `forge explain {job_id}`)", style="yellow")

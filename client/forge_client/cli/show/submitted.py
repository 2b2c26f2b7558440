"""Submits a folder's jobs, and reports the upload, their resources and matching workers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_schema.model.quantities import MIB, counted, duration_text, size_text
from forge_schema.model.states import in_state

from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, brief, inline
from forge_client.cli.show.standing import resources
from forge_client.cli.show.waiting import wait_and_show
from forge_client.errors import ClientError, Misconfigured, Unreachable
from forge_client.project.notices import NOBODY, remarks
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
    from datetime import datetime

    from forge_schema.model.job import JobDetail
    from forge_schema.model.spec import Key

    from forge_client.backend import Backend
    from forge_client.project.forge_toml import Project
    from forge_client.project.request import Request
    from forge_client.settings import Settings


def submit_one(backend: Backend, whole: PreparedSubmit, form: Format, *, wait: bool) -> None:
    """Submit a job, and show it as below."""
    keyed = any(spec.get("idempotency_key") for spec in whole.specs)
    asked_at = backend.overview().at if keyed else None
    (job_id,) = backend.submit(uploaded(backend, whole))
    show_submitted(backend, job_id, form, wait=wait, asked_at=asked_at)


def show_submitted(
    backend: Backend, job_id: int, form: Format, *, wait: bool, asked_at: datetime | None = None
) -> None:
    """Tell of a job that was submitted just now, and print its id; or follow it to its end.

    One that was there before it was `asked_at`, by the queue's clock, has the same key.

    Raises:
        SystemExit: with the code for how it ended.
    """
    status = _submitted(backend, job_id)
    if asked_at and status.submitted_at < asked_at:
        narration.say(f"job {job_id} has this key already: nothing was submitted", "yellow")
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
        "remarks": plan.remarks,
    }
    output.show_one(answer, form, lambda: _print_plan(plan))


def _print_plan(plan: DryRun) -> None:
    jobs = plan.jobs
    output.fields([("owner", jobs[0].get("owner")), *_shown(jobs[0])])
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
    for text in plan.remarks:
        WARN(text)
    many = f"{counted(len(jobs), 'job')}, " * bool(jobs[1:])
    sizes = f"{counted(len(plan.files), 'file')}, {size_text(plan.bytes)}; " * bool(plan.files)
    narration.say(f"{many}{sizes}nothing was submitted")


def _shown(job: Mapping[str, Any], table: str = "") -> list[tuple[str, object]]:
    """Return what a job says, as people write it, but for what every job has by default."""
    from forge_schema.model.spec import KEYS  # noqa: PLC0415 - only for this

    keys = [key for key in KEYS.values() if key.table == table]
    said = [(key, value) for key in keys if (value := job.get(key.field)) != key.default]
    return [(key.name, _in_words(key, value)) for key, value in said if value is not None]


def _in_words(key: Key, value: Any) -> str:  # noqa: ANN401 - of any field
    if isinstance(value, Mapping) and (own := dict(_shown(value, key.name))):
        return inline(own)
    if key.unit == "_mb":
        return size_text(value * MIB)
    return duration_text(value) if key.unit == "_s" else inline(value)


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
    *others, last = remarks(explanation) or [""]
    for text in others:
        narration.say(text, style="yellow")
    if last:
        more = f" (details: `forge explain {job_id}`)" if explanation.outlook in NOBODY else ""
        narration.say(f"{last}{more}", style="yellow")

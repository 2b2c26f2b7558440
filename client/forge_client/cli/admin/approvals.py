"""`forge approve`: the jobs that wait for an admin's approval."""

from collections.abc import Iterator
from typing import Annotated

import typer
from forge_schema.model.admin import AwaitingApproval
from forge_schema.model.quantities import names_text

from forge_client.backend import Backend
from forge_client.cli.options.job_names import OptionalJobIds
from forge_client.cli.options.selection import YesOption, confirm
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.sweep_names import the_one
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, FormatOption, ago
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode

PAGE = 1000
COLUMNS: list[Column] = [
    ("ID", lambda j: j.job_id),
    ("NAME", lambda j: j.name),
    ("OWNER", lambda j: j.owner),
    ("SWEEP", lambda j: j.sweep),
    ("NEEDS", lambda j: j.approval.amount),
    ("JOBS", lambda j: j.approval.jobs),
    ("SUBMITTED", lambda j: ago(j.submitted_at)),
]


def approve(
    context: typer.Context,
    jobs: OptionalJobIds = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="Approve all waiting jobs of this sweep; the start of its name will do."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Owner of the sweep, or of the jobs to list.")
    ] = None,
    yes: YesOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Approve jobs above what their owner may spend. Without jobs, list those that wait."""
    with backend_of(context) as backend:
        if not jobs and sweep is None:
            output.show(list(_waiting(backend, owner=owner)), COLUMNS, form)
            return
        if sweep is not None:
            _approve_sweep(backend, sweep, owner, yes=yes)
        if jobs:
            _approve(backend, jobs)


def _approve_sweep(backend: Backend, start: str, owner: str | None, *, yes: bool) -> None:
    waiting = list(_waiting(backend, owner=owner))
    sweep = the_one(start, (job.sweep for job in waiting), "forge approve")
    found = [job for job in waiting if job.sweep == sweep]
    owners = sorted({job.owner for job in found})
    if len(owners) > 1:
        raise ClientError(
            f"{', '.join(owners)} have sweeps called {sweep!r}",
            hint="name the owner with --owner",
            code="option_invalid",
        )
    if sweep != start:
        confirm(found, "approve", yes=yes)
    for at in range(0, len(found), PAGE):
        backend.admin.approve([job.job_id for job in found[at : at + PAGE]])
    if found:
        narration.say(f"{sweep}: {len(found)} approved")
    else:
        narration.say(f"no job of the sweep {sweep} waits for approval", style="yellow")


def _approve(backend: Backend, jobs: list[int]) -> None:
    found: dict[str, list[int]] = {"approved": [], "unasked": [], "absent": []}
    jobs = list(dict.fromkeys(jobs))
    for at in range(0, len(jobs), PAGE):
        _sort(backend, jobs[at : at + PAGE], found)
    if approved := found["approved"]:
        narration.say(f"{len(approved)} approved")
    if unasked := found["unasked"]:
        were = "was" if len(unasked) == 1 else "were"
        narration.say(f"{_named(unasked)} {were} not waiting for approval", style="yellow")
    if absent := found["absent"]:
        raise ClientError(
            f"{_named(absent)} {'does' if len(absent) == 1 else 'do'} not exist",
            hint="`forge approve` lists those that wait",
            code="job_unknown",
            exit_code=ExitCode.NOT_FOUND,
        )


def _sort(backend: Backend, jobs: list[int], into: dict[str, list[int]]) -> None:
    """Approve jobs, and sort them by outcome. The queue counts outcomes, so halves tell whose."""
    counts = backend.admin.approve(jobs)
    for outcome, count in counts.items():
        if count == len(jobs):
            into[outcome] += jobs
            return
    half = len(jobs) // 2
    _sort(backend, jobs[:half], into)
    _sort(backend, jobs[half:], into)


def _named(jobs: list[int]) -> str:
    return f"job{'s' * (len(jobs) > 1)} {names_text([str(job) for job in jobs])}"


def _waiting(backend: Backend, *, owner: str | None) -> Iterator[AwaitingApproval]:
    after = 0
    while page := backend.admin.approvals(owner=owner, after=after, count=PAGE):
        yield from page
        after = page[-1].job_id

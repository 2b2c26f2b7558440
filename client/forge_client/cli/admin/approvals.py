"""`forge approve`: the jobs that wait for an admin's approval."""

from collections.abc import Iterator
from typing import Annotated

import typer
from forge_schema.model.admin import AwaitingApproval

from forge_client.backend import Backend
from forge_client.cli.options.names import OptionalJobIds
from forge_client.cli.options.selection import YesOption, confirm
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago
from forge_client.errors import InvalidInput
from forge_client.results.names import approvals_text, require_present, the_one

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
            waiting = list(_waiting(backend, owner=owner))
            output.show(waiting, COLUMNS, form, nothing="no job waits for approval")
            return
        if sweep is not None:
            _approve_sweep(backend, sweep, owner, yes=yes)
        if jobs:
            _approve(backend, jobs)


def _approve_sweep(backend: Backend, start: str, owner: str | None, *, yes: bool) -> None:
    waiting = list(_waiting(backend, owner=owner))
    sweep = the_one(start, (job.sweep for job in waiting), "forge approve")
    of_sweep = [job for job in waiting if job.sweep == sweep]
    owners = sorted({job.owner for job in of_sweep})
    if len(owners) > 1:
        raise InvalidInput(
            f"{', '.join(owners)} have sweeps called {sweep!r}", hint="name the owner with --owner"
        )
    if sweep != start:
        confirm(of_sweep, "approve", yes=yes)
    for at in range(0, len(of_sweep), PAGE):
        backend.admin.approve([job.job_id for job in of_sweep[at : at + PAGE]])
    if of_sweep:
        narration.say(f"{sweep}: {len(of_sweep)} approved")
    else:
        narration.say(f"no job of the sweep {sweep} waits for approval", style="yellow")


def _approve(backend: Backend, jobs: list[int]) -> None:
    jobs = list(dict.fromkeys(jobs))
    pages = [backend.admin.approve(jobs[at : at + PAGE]) for at in range(0, len(jobs), PAGE)]
    if approved := sum(page.approved for page in pages):
        narration.say(f"{approved} approved")
    if unasked := sum(page.unasked for page in pages):
        were = "was" if unasked == 1 else "were"
        sentence = f"{approvals_text(pages, 'unasked', unasked)} {were} not waiting for approval"
        narration.say(sentence, style="yellow")
    require_present(pages)


def _waiting(backend: Backend, *, owner: str | None) -> Iterator[AwaitingApproval]:
    after = 0
    while page := backend.admin.approvals(owner=owner, after=after, count=PAGE):
        yield from page
        after = page[-1].job_id

"""`forge ps` and `forge show`: a list of jobs, and one job in detail."""

from typing import Annotated

import typer
from forge_schema.model.job import Attempt, Event, Firing, JobDetail, JobStatus
from forge_schema.model.quantities import counted, duration_text, exit_in_words, names_text

from forge_client.cli.options.session import JobId, backend_of, settings_of
from forge_client.cli.show import output
from forge_client.cli.show.endings import (
    decisive,
    first_line,
    reason_in_words,
    waiting_for,
    what_follows,
)
from forge_client.cli.show.output import Column, Format, FormatOption, ago, inline
from forge_client.cli.show.submitted import resources
from forge_client.connection import connect
from forge_client.project.git import revision_text


def _progress(job: JobStatus) -> str:
    """Return the progress of a running job."""
    if job.state != "running":
        return ""
    return f"{job.progress:.0%}" if job.progress is not None else (job.phase or "")


def _why(job: JobStatus) -> str:
    """Return the reason for a job's state in a word or two."""
    if job.asked:
        return "ending" if job.asked == "ended" else f"being {job.asked}"
    if job.waits_for:
        return waiting_for(job)
    if job.run_at and job.state == "scheduled":
        shown = ago(job.run_at)
        return f"due {shown}" if shown.endswith("ago") else f"not before {shown}"
    if job.reason is None or job.reason.value == job.state:
        return ""
    if job.reason == "exit_code":
        return exit_in_words(job.exit_code)
    said = reason_in_words(job.reason)
    return f"{said} ({job.exit_code})" if job.exit_code else said


def _workers(job: JobStatus) -> str | None:
    """Return the workers that run a job; a server of the version before tells only one."""
    return names_text(job.workers) or job.worker


COLUMNS: list[Column] = [
    ("ID", lambda j: j.job_id),
    ("NAME", lambda j: j.name),
    ("STATE", lambda j: j.state),
    ("PROGRESS", _progress),
    ("ATTEMPT", lambda j: j.attempt or ""),
    ("WORKER", _workers),
    ("WHY", _why),
    ("QUEUE", lambda j: j.queue),
    ("OWNER", lambda j: j.owner),
    ("SUBMITTED", lambda j: ago(j.submitted_at)),
]
# A run of a range of machines may have more than the job needs.
NODES: Column = ("NODES", lambda j: len(j.workers) or j.nodes)
ATTEMPTS: list[Column] = [
    ("ATTEMPT", lambda a: a.attempt),
    ("WORKER", lambda a: a.worker),
    ("REASON", lambda a: a.reason),
    ("EXIT", lambda a: a.exit_code),
    ("WAITED", lambda a: duration_text(a.waited_s)),
    ("HELD", lambda a: duration_text(a.held_s)),
    ("ACCEPTED", lambda a: "yes" if a.accepted else ""),
    ("DETAIL", lambda a: first_line(a.detail)),
]
RANK: Column = ("RANK", lambda a: a.rank)
MEMBERS: list[Column] = [
    RANK,
    ("WORKER", lambda m: m.worker),
    ("PHASE", lambda m: m.doing if m.reason is None else ""),
    ("REASON", lambda m: m.reason),
    ("EXIT", lambda m: m.exit_code),
]
EVENTS: list[Column] = [
    ("WHEN", lambda e: e.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
    ("WHO", lambda e: e.actor),
    ("WHAT", lambda e: e.action),
]
# Part of the line of resources.
SAID = {"resources", "nodes", "max_nodes", "git"}
States = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", help="Only jobs in this state; may be given several times."),
]


def ps(
    context: typer.Context,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's jobs.")] = None,
    state: States = None,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Maximum number of jobs.", min=1, max=1000)
    ] = 25,
    before: Annotated[int | None, typer.Option(help="Only jobs older than this id.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the newest jobs."""
    settings = settings_of(context)
    with connect(settings) as backend:
        if mine:
            owner = settings.job_owner or backend.me().owner
        rows = backend.jobs(owner=owner, states=state or None, before=before, count=count)
        several = any(row.nodes > 1 for row in rows)
        output.show(rows, [*COLUMNS[:5], NODES, *COLUMNS[5:]] if several else COLUMNS, form)


def show(
    context: typer.Context,
    job: JobId,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show one job: its configuration, attempts and events."""
    with backend_of(context) as backend:
        detail, attempts, events = backend.job(job), backend.attempts(job), backend.events(job)
    everything = {"job": detail, "attempts": attempts, "events": events}
    output.show_one(everything, form, lambda: _print(detail, attempts, events))


def source(job: JobDetail) -> str:
    """Return the checkpoint that a job started from, with all that is still known about it."""
    if job.source_job_id is None:
        return ""
    number = f":{job.source_attempt}.{job.source_number}" if job.source_attempt else ""
    return f"checkpoint {job.source_job_id}{number}"


def submitter(firing: Firing | None) -> str:
    """Return the schedule that submitted a job."""
    return f"schedule {firing.schedule}, due {inline(firing.due_at)}" if firing else ""


def _next(job: JobDetail, attempts: list[Attempt]) -> str:
    """Return when a failed job is retried."""
    if job.terminal or job.state == "running" or not attempts:
        return ""
    ended = decisive(attempts)
    return what_follows(job, ended[max(ended)].reason)


def _print(job: JobDetail, attempts: list[Attempt], events: list[Event]) -> None:
    budgets = (
        counted(job.max_failures, "failure"),
        counted(job.max_losses, "loss", "losses"),
        counted(job.max_preemptions, "preemption"),
    )
    output.fields([
        ("job", f"{job.job_id} {job.name}"),
        ("state", job.state),
        ("why", _why(job)),
        ("next", _next(job, attempts)),
        ("detail", job.detail),
        ("progress", _progress(job)),
        ("workers" if job.nodes > 1 else "worker", _workers(job)),
        ("attempt", job.attempt),
        ("checkpoint", f"{duration_text(job.saved_s)} ago" if job.saved_s is not None else ""),
        ("owner", job.owner),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("submitted", ago(job.submitted_at)),
        ("by", submitter(job.firing)),
        ("finished", ago(job.finished_at)),
        ("time limit", duration_text(job.timeout_s) if job.timeout_s else ""),
        ("budgets", ", ".join(budgets)),
        ("starts from", source(job)),
        ("resources", resources(job)),
        *((name, inline(value)) for name, value in job.spec.items() if name not in SAID),
        ("bundle", job.bundle_digest),
        ("revision", revision_text(job.spec)),
    ])  # fmt: skip
    several = any(one.rank for one in attempts)
    tried = [ATTEMPTS[0], RANK, *ATTEMPTS[1:]] if several else ATTEMPTS
    for rows, columns in ((job.members, MEMBERS), (attempts, tried), (events, EVENTS)):
        if rows:
            output.console().print()
            output.show(rows, columns, Format.TABLE)

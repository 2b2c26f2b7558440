"""One job in detail, as `forge show` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from forge_schema.model.quantities import counted, duration_text, size_text
from forge_schema.model.reading import files_and_links, link_of
from forge_schema.model.states import reason_in_words
from forge_schema.trail import in_words, input_texts, rest_of

from forge_client.cli.show import output
from forge_client.cli.show.output import Column, Format, ago, brief, inline
from forge_client.cli.show.standing import (
    cost_text,
    environment_text,
    progress,
    ran,
    resources,
    revision_text,
    why,
    workers,
)
from forge_client.results.endings import decisive, first_line, what_follows

if TYPE_CHECKING:
    from forge_schema.model.job import Attempt, Event, Firing, JobDetail
    from forge_schema.model.stored import Artifact

ATTEMPTS: list[Column] = [
    ("ATTEMPT", lambda a: a.attempt),
    ("WORKER", lambda a: a.worker),
    ("REASON", lambda a: reason_in_words(a.reason)),
    ("EXIT", lambda a: a.exit_code),
    ("WAITED", lambda a: ran(a.waited_s)),
    ("TOOK", lambda a: ran(a.held_s)),
    ("ACCEPTED", lambda a: "yes" if a.accepted else ""),
    ("DETAIL", lambda a: first_line(a.detail)),
]
RANK: Column = ("RANK", lambda a: a.rank)
MEMBERS: list[Column] = [
    RANK,
    ("WORKER", lambda m: m.worker),
    ("PHASE", lambda m: m.doing if m.reason is None else ""),
    ("REASON", lambda m: reason_in_words(m.reason)),
    ("EXIT", lambda m: m.exit_code),
]
EVENTS: list[Column] = [
    ("WHEN", lambda e: e.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
    ("WHO", lambda e: e.actor),
    ("WHAT", lambda e: in_words(e.action, e.detail or {})),
    ("DETAIL", lambda e: brief(rest_of(e.action, e.detail))),
]
# What a narrow terminal does without, of any of them.
DROP = ("ACCEPTED", "WAITED", "TOOK")
# Part of the line of resources.
SAID = {"resources", "nodes", "max_nodes", "git", "environment", "tags"}
# How much of a bundle's digest is shown: enough to compare two jobs.
DIGITS = 12


def source(job: JobDetail) -> str:
    """Return the checkpoint that a job started from, with all that is still known about it."""
    if job.source_job_id is None:
        return ""
    number = f":{job.source_attempt}.{job.source_number}" if job.source_attempt else ""
    return f"checkpoint {job.source_job_id}{number}"


def submitter(firing: Firing | None) -> str:
    """Return the schedule that submitted a job."""
    return f"schedule {firing.schedule}, due {inline(firing.due_at)}" if firing else ""


def _next(job: JobDetail, attempts: Sequence[Attempt]) -> str:
    """Return when a failed job is retried."""
    if job.terminal or job.state == "running" or not attempts:
        return ""
    ended = decisive(attempts)
    return what_follows(job, ended[max(ended)].reason)


def _artifacts(job: int, files: Sequence[Artifact]) -> str:
    if not files:
        return ""
    size = size_text(sum(file.bytes for file in files if file.target is None))
    return f"{files_and_links(files)}, {size}: `forge artifacts {job}`"


def _packages(job: JobDetail) -> str:
    locked = (job.spec.get("environment") or {}).get("lock")
    listed = f": `forge code {job.job_id} --packages` lists them" if locked else ""
    return f"{environment_text(job.spec)}{listed}"


def _running(job: JobDetail) -> list[SimpleNamespace]:
    """Return the attempt that runs now, as a row below those that have ended."""
    if job.state != "running" or job.members:
        return []
    return [
        SimpleNamespace(
            attempt=job.attempt, rank=0, worker=job.worker, reason=job.phase, exit_code=None,
            waited_s=None, held_s=job.ran_s, accepted=False, detail="",
        )
    ]  # fmt: skip


def _configuration(spec: Mapping[str, Any], events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Yield what was requested, in words: `grace_s` as `grace`, each variable on its line."""
    for name, value in spec.items():
        if name == "inputs" and isinstance(value, Mapping):
            texts = input_texts(spec, events).values()
            yield from (("inputs" if n == 0 else " ", text) for n, text in enumerate(texts))
        elif name == "env" and isinstance(value, Mapping):
            yield from (
                ("environment" if n == 0 else " ", f"{key}={text}")
                for n, (key, text) in enumerate(value.items())
            )
        elif name.endswith("_s") and isinstance(value, int | float):
            yield name[:-2].replace("_", " "), duration_text(value)
        elif name not in SAID:
            yield name.replace("_", " "), inline(value)


def _left(
    job: JobDetail,
    metrics: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    artifacts: Sequence[Artifact],
) -> list[tuple[str, str]]:
    """Return what a job has left: what it reported and stored."""
    links = [(key, url) for key, value in metrics.items() if (url := link_of(value))]
    hidden = {"step", "total", *dict(links)}
    return [
        ("metrics", inline({k: v for k, v in metrics.items() if k not in hidden})),
        *links,
        ("result", _result(result)),
        ("artifacts", _artifacts(job.job_id, artifacts)),
    ]


def _result(result: Mapping[str, Any] | None) -> str:
    """Return a result on a line; of the records of tasks, only how many ended how."""
    if not result:
        return inline(result)
    # Only for a job with a result: what runs tasks takes a while to import.
    from forge_client.project.task_runner import RECORDS  # noqa: PLC0415

    tasks = result.get(RECORDS)
    if not isinstance(tasks, list):
        return inline(result)
    states = Counter(task.get("state") or "not ended" for task in tasks if isinstance(task, dict))
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"of {counted(len(tasks), 'task')}: {counts}"


def details(
    job: JobDetail,
    attempts: Sequence[Attempt],
    events: Sequence[Event],
    **reported: Any,  # noqa: ANN401 - passed on
) -> None:
    """Print all about a job: what `everything` finds."""
    budgets = (
        counted(job.max_failures, "failure"),
        counted(job.max_losses, "loss", "losses"),
        counted(job.max_preemptions, "preemption"),
    )
    output.fields([
        ("job", f"{job.job_id} {job.name}"),
        ("state", job.state),
        ("why", why(job)),
        ("next", _next(job, attempts)),
        ("detail", job.detail),
        ("tags", " ".join(job.tags)),
        ("note", job.note),
        ("archived", "yes; lists leave it out" if job.archived else ""),
        ("progress", progress(job)),
        ("ran for" if job.terminal else "running for", ran(job.ran_s)),
        ("cost" if job.terminal else "cost so far", cost_text(job.cost)),
        *_left(job, **reported),
        ("workers" if job.nodes > 1 else "worker", workers(job)),
        ("attempt", job.attempt),
        ("checkpoint", f"{duration_text(job.saved_s)} ago" if job.saved_s is not None else ""),
        ("owner", f"{job.owner}, of the team {job.team}" if job.team else job.owner),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("submitted", ago(job.submitted_at)),
        ("by", submitter(job.firing)),
        ("finished", ago(job.finished_at)),
        ("time limit", duration_text(job.timeout_s) if job.timeout_s else ""),
        ("budgets", ", ".join(budgets)),
        ("starts from", source(job)),
        ("resources", resources(job)),
        ("packages", _packages(job)),
        *_configuration(job.spec, events),
        ("bundle", (job.bundle_digest or "")[:DIGITS]),
        ("revision", revision_text(job.spec)),
    ])  # fmt: skip
    tried: list[Any] = [*attempts, *_running(job)]
    columns = (
        [ATTEMPTS[0], RANK, *ATTEMPTS[1:]] if any(attempt.rank for attempt in tried) else ATTEMPTS
    )
    for rows, titles in ((job.members, MEMBERS), (tried, columns), (events, EVENTS)):
        if rows:
            output.blank()
            output.show(rows, titles, Format.TABLE, DROP)

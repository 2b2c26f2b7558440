"""What a shell completes and takes no typer to find: jobs, their states, terms of queries."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from forge_schema.model.states import StateWord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forge_client.backend import Backend

# Nobody waits longer for a completion.
PATIENCE_S = 3.0
NEWEST = 50
Known: TypeAlias = "Iterable[tuple[str, str]]"


def known_jobs(backend: Backend) -> Known:
    """Yield what names a job, with a remark."""
    jobs = backend.jobs(count=NEWEST)
    if jobs:
        yield "@last", "your newest job"
    yield from ((str(job.job_id), f"{job.name}, {job.state}") for job in jobs)
    # A name that several jobs have names none of them.
    counts = Counter(job.name for job in jobs)
    yield from ((job.name, f"{job.job_id}, {job.state}") for job in jobs if counts[job.name] == 1)


def terms(incomplete: str) -> list[str]:
    """Complete the keys of a query, and the states."""
    # It is large.
    from forge_schema.job_filter import KEYS  # noqa: PLC0415

    known = [f"{key}:" for key in KEYS] + [f"state:{word}" for word in StateWord]
    shown = known if ":" in incomplete else known[: len(KEYS)]
    return [term for term in shown if term.startswith(incomplete)]


def states(incomplete: str) -> list[str]:
    """Complete the states of jobs, which need no queue."""
    return [word.value for word in StateWord if word.startswith(incomplete)]

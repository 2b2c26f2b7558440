"""Wait for many jobs, in the manner of `concurrent.futures`."""

import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

from forge_schema.model.job import job_unknown
from forge_schema.model.quantities import counted, duration_text

from forge_client.backend import Backend
from forge_client.errors import Outage, as_client_error
from forge_client.sdk.job import Job

J = TypeVar("J", bound=Job)
POLL_S = 0.5
QUICK_POLL_S = 0.1


class Waited(NamedTuple):
    """What `wait` returns."""

    done: set[Job]
    not_done: set[Job]


def as_completed(jobs: Iterable[J] | J, timeout: float | None = None) -> Iterator[J]:
    """Yield jobs as they end, successfully or not, with a few queries for any number of jobs.

    Args:
        jobs: the jobs.
        timeout: how long to wait for all of them, in seconds.

    Raises:
        TimeoutError: some jobs have not ended in time.
    """
    pending = dict.fromkeys(_each(jobs))
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, outage = QUICK_POLL_S, Outage()
    while pending:
        ended = outage.ask(lambda: _ended(pending)) or []
        for job in ended:
            del pending[job]
            yield job
        if not pending:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"{counted(len(pending), 'job')} did not end within {duration_text(timeout or 0)}"
            )
        pause = QUICK_POLL_S if ended else min(pause * 1.3, POLL_S)
        time.sleep(pause)


def wait(jobs: Iterable[Job] | Job, timeout: float | None = None) -> Waited:
    """Wait until all jobs have ended, or for `timeout` seconds; return both sets."""
    waited = Waited(set(), set(_each(jobs)))
    try:
        for job in as_completed(list(waited.not_done), timeout):
            waited.not_done.discard(job)
            waited.done.add(job)
    except TimeoutError:
        pass
    return waited


def _each(jobs: Iterable[J] | J) -> Iterable[J]:
    return [jobs] if isinstance(jobs, Job) else jobs


def _ended(jobs: Collection[J]) -> list[J]:
    by_backend: dict[Backend, list[J]] = {}
    for job in jobs:
        by_backend.setdefault(job.backend, []).append(job)
    statuses = {
        (backend, job_id): status
        for backend, theirs in by_backend.items()
        for job_id, status in backend.statuses([*{job.id for job in theirs}]).items()
    }
    with as_client_error():
        for job in jobs:
            if (job.backend, job.id) not in statuses:
                raise job_unknown(job.id)
    return [job for job in jobs if statuses[job.backend, job.id].terminal]

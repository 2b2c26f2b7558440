"""Follows a job from wherever it is to its end: its output, and how it stands."""

import time
from collections.abc import Iterator

from forge_client.backend import Backend
from forge_client.log_reader import LogReader, Piece
from forge_client.records import JobStatus

QUICKEST_S = 0.1


def follow(
    backend: Backend, job_id: int, *, attempt: int | None = None
) -> Iterator[Piece | JobStatus]:
    """Yield output as it comes, and the job's status first, last and whenever it changed.

    Args:
        backend: where the job is.
        job_id: the job.
        attempt: the one attempt to follow; None follows them all.
    """
    reader = LogReader(backend, job_id, attempt=attempt)
    known: JobStatus | None = None
    pause = QUICKEST_S
    while True:
        # In this order: what an ended attempt wrote was there before its end was.
        status: JobStatus = backend.job(job_id)
        over = _over(status, attempt)
        news = False
        if not over and (news := status != known):
            yield status
        for piece in reader.new(final=over):
            news = True
            yield piece
        if over:
            yield status
            return
        known = status
        pause = QUICKEST_S if news else min(pause * 1.3, backend.slowest_s)
        time.sleep(pause)


def _over(status: JobStatus, attempt: int | None) -> bool:
    if status.terminal or attempt is None:
        return status.terminal
    return (status.attempt, status.state != "running") >= (attempt, True)

"""Follows a job from wherever it is to its end: its output, and how it stands."""

import time
from collections.abc import Iterator

from forge_client.backend import Backend
from forge_client.log_reader import Part, Piece
from forge_client.log_reading import LogReading
from forge_client.records import JobStatus

QUICKEST_S = 0.1


def follow(backend: Backend, job_id: int, part: Part | None = None) -> Iterator[Piece | JobStatus]:
    """Yield output as it comes, and the job's status first, last and whenever it changed.

    Args:
        backend: where the job is.
        job_id: the job.
        part: the part of its output; with an attempt, only that one is followed.
    """
    part = part or Part()
    reading: LogReading | None = None
    known: JobStatus | None = None
    pause = QUICKEST_S
    while True:
        # In this order: what an ended attempt wrote was there before its end was.
        status = backend.job(job_id)
        over = _over(status, part.attempt)
        news = False
        if not over and (news := status != known):
            yield status
        reading = reading or LogReading(backend, status, part)
        for piece in reading.new(final=over):
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

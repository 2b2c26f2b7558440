"""Follows a job from its current state to its end: its output and its status."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forge_client.errors import ClientError, Outage
from forge_client.results.log_reader import LogPart, LogPiece, LogReading

if TYPE_CHECKING:
    from forge_schema.model.job import JobDetail

    from forge_client.backend import Backend

QUICKEST_S = 0.1
TIMES = dict.fromkeys(("due_in_s", "ran_s", "saved_s"))


def _silent(_text: str) -> None:
    """Say nothing."""


def follow(
    backend: Backend,
    job_id: int,
    part: LogPart | None = None,
    *,
    say: Callable[[str], None] = _silent,
) -> Iterator[LogPiece | JobDetail]:
    """Yield output as it arrives, and the job's status first, last and after each change.

    The start or end of an attempt comes after all output written before it.

    Args:
        backend: the backend that has the job.
        job_id: the job.
        part: the part of its output; with an attempt, only that attempt is followed.
        say: tells that nothing answers for a while.
    """
    part = part or LogPart()
    reading: LogReading | None = None
    known: JobDetail | None = None
    pause, outage = QUICKEST_S, Outage()
    while True:
        early = written = False
        try:
            # In this order: the output of an ended attempt is stored before its end.
            status = backend.job(job_id)
            over = _over(status, part.attempt)
            moved = not over and (known is None or _moved(known, status))
            if early := moved and _goes_on(known, status):
                yield status
                known = status
            reading = reading or LogReading(backend, status, part)
            for piece in reading.new(final=over):
                written = True
                yield piece
        except ClientError as error:
            if outage.is_new and known is not None:
                say(f"{error.message}; waiting until it does")
            if known is None or not outage.passes(error):
                raise
            time.sleep(backend.slowest_s)
            continue
        outage.over()
        if over or (moved and not early):
            yield status
        if over:
            return
        known = status
        pause = QUICKEST_S if moved or written else min(pause * 1.3, backend.slowest_s)
        time.sleep(pause)


def _moved(known: JobDetail, status: JobDetail) -> bool:
    # These times change with every query.
    return {**dict(status), **TIMES} != {**dict(known), **TIMES}


def _goes_on(known: JobDetail | None, status: JobDetail) -> bool:
    """Tell whether there is nothing left to read of the attempts before the current one."""
    if status.state != "running":
        return status.attempt == 0
    return status.attempt == (known.attempt if known else 1)


def _over(status: JobDetail, attempt: int | None) -> bool:
    if status.terminal or attempt is None:
        return status.terminal
    return (status.attempt, status.state != "running") >= (attempt, True)

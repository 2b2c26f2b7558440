"""The output that a job has stored so far, on stdout, and what became of it on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.cli.show import narration
from forge_client.cli.show.waiting import Teller, wait_for
from forge_client.errors import ClientError, ExitCode
from forge_client.results.log_reader import LogPart, LogReading
from forge_client.results.names import require_rank

if TYPE_CHECKING:
    from forge_schema.model.job import JobDetail

    from forge_client.backend import Backend
    from forge_client.cli.show.log_lines import Shaping


def begun(
    backend: Backend,
    job: int,
    part: LogPart,
    shaping: Shaping,
    *,
    named: bool,
    follow: bool = False,
) -> tuple[JobDetail, Teller]:
    """Return a job and what tells its log; a job that nobody named is named here.

    Raises:
        ClientError: there is no such job or rank.
    """
    known = backend.job(job)
    require_rank(known, part.rank)
    if not named:
        narration.say(f"job {job} {known.name!r}, your newest", "dim")
    return known, Teller(backend, job, shaping, phases=follow, part=part)


def followed(backend: Backend, job: int, part: LogPart, teller: Teller) -> int:
    """Print a part of a job's log until the job ends, and return the command's exit code."""
    code = wait_for(backend, job, part, teller)
    return code if code == ExitCode.INTERRUPTED else ExitCode.OK


def stored_log(backend: Backend, job: JobDetail, part: LogPart, teller: Teller) -> None:
    """Print what a part of a job's log has now.

    Raises:
        ClientError: there is no such attempt, or some of the output cannot be read.
    """
    if part.attempt is not None and part.attempt > job.attempt:
        raise ClientError(
            f"job {job.job_id} has had no attempt {part.attempt}",
            hint=f"`forge show {job.job_id}` lists its attempts",
            code="attempt_unknown",
        )
    teller.known = job
    reading = LogReading(backend, job, part)
    for piece in reading.new(final=True):
        teller.piece(piece)
    teller.rest()
    teller.end_line()
    if reading.damaged:
        raise reading.damaged
    if job.terminal and part.attempt in {None, job.attempt}:
        teller.status(job)
    if not job.attempt and not job.terminal:
        narration.say(f"job {job.job_id} is {job.state}: `-f` waits for its output", "dim")

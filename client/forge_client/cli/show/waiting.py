"""Shows a job's output on stdout, stored or as it arrives, and its status on stderr."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from forge_schema.model.quantities import counted, names_text

from forge_client.cli.show import narration, output
from forge_client.cli.show.log_lines import Shaping
from forge_client.cli.show.output import Format
from forge_client.errors import ClientError, ExitCode, Unreachable
from forge_client.findings import everything
from forge_client.results.endings import attempt_ending, decisive, ending, what_follows
from forge_client.results.log_reader import LogPart, LogPiece, LogReading, follow
from forge_client.results.names import require_attempt, require_rank

if TYPE_CHECKING:
    from forge_schema.model.job import Attempt, JobDetail, JobStatus

    from forge_client.backend import Backend
    from forge_client.cli.show.log_lines import Shaping

SIGNAL_BASE = 128
LARGEST_CODE = 255
PHASES = {
    "claimed": "claimed",
    "preparing": "preparing",
    "running": "running",
    "stopping": "stopping",
    "finishing": "storing what it left",
}


def wait_for(
    backend: Backend, job_id: int, part: LogPart | None = None, teller: Teller | None = None
) -> int:
    """Follow a job to its end, and return the exit code for how it ended.

    After Ctrl-C, it says how to resume following; the job continues.
    """
    teller = teller or Teller(backend, job_id)
    try:
        for item in follow(backend, job_id, part, say=partial(narration.say, style="dim")):
            if isinstance(item, LogPiece):
                teller.piece(item)
            else:
                teller.status(item)
        teller.rest()
    except KeyboardInterrupt:
        teller.end_line()
        again = f"`forge logs -f {job_id}` follows it again"
        # Before its state is known, the job may have ended.
        runs = f"; job {job_id} keeps running" if teller.known else ""
        narration.say(f"detached{runs}. {again}, `forge cancel {job_id}` ends it")
        return ExitCode.INTERRUPTED
    except ClientError as error:
        teller.end_line()
        if isinstance(error, Unreachable):
            error.hint += f"; the job keeps running, and `forge logs -f {job_id}` follows it again"
        raise
    return exit_code(teller.known) if teller.known else ExitCode.FAILED


def wait_and_show(backend: Backend, job_id: int, form: Format) -> int:
    """Follow a job to its end, and return the exit code for how it ended.

    As JSON, stdout has what `forge show` says of the job then, and stderr its log.
    """
    if form is Format.TABLE:
        return wait_for(backend, job_id)
    code = wait_for(backend, job_id, teller=Teller(backend, job_id, aside=True))
    if code != ExitCode.INTERRUPTED:
        output.show_one(everything(backend, job_id), form, lambda: None)
    return code


def exit_code(status: JobStatus) -> int:
    """Return a job's own exit code, or the one that stands for how it ended."""
    if status.state == "succeeded":
        return ExitCode.OK
    if status.reason == "timeout":
        return ExitCode.TIMED_OUT
    if not status.exit_code or status.state == "cancelled":
        return ExitCode.NO_RESULT
    # After a signal, some runners report a negative code, others the code that a shell reports.
    code = SIGNAL_BASE - status.exit_code if status.exit_code < 0 else status.exit_code
    # Of another one, a shell sees only the last 8 bits: 256 would be a success.
    return code if code <= LARGEST_CODE else ExitCode.NO_RESULT


def _last_words(status: JobDetail) -> str:
    sentence = ending(status)
    if status.state == "failed":
        sentence = f"{sentence.rstrip('.')}. See: forge logs {status.job_id} --tail 20"
    return sentence


class Teller:
    """Writes pieces unchanged or shaped, and a line on stderr whenever the job moves.

    Args:
        backend: the backend that has the job.
        job_id: the job.
        shaping: how to transform the output; by default, only ranks are marked.
        phases: whether each phase of an attempt counts as a move.
        part: the part of the output; only its attempt is reported, and the worker of its rank.
        aside: whether the output goes to stderr too, because stdout is for data.
    """

    def __init__(
        self,
        backend: Backend,
        job_id: int,
        shaping: Shaping | None = None,
        *,
        phases: bool = False,
        part: LogPart | None = None,
        aside: bool = False,
    ) -> None:
        self.known: JobDetail | None = None
        self._backend = backend
        self._job_id = job_id
        self._shaping = shaping or Shaping(colour=output.coloured())
        self._phases = phases
        self._only = part.attempt if part else None
        self._rank = part.rank if part else None
        self._attempt = 0
        self._ended = 0
        self._whole_line = True
        self._to = sys.stderr if aside else sys.stdout

    def piece(self, piece: LogPiece) -> None:
        """Write output."""
        self._begin(piece.attempt)
        if piece.missing > 0:
            self._say(f"— {counted(piece.missing, 'byte')} of the log missing here —")
        for data in self._shaping.shaped(piece):
            self._write(data)
        self._to.buffer.flush()

    def status(self, status: JobDetail) -> None:
        """Report the job's status if it has changed."""
        before, self.known = self.known, status
        if status.terminal:
            self.rest()
            self._begin(status.attempt)
            self._say(_last_words(status))
        elif status.state == "running":
            self._begin(status.attempt)
            if self._phases:
                self._does(before, status)
        elif before is None or (before.state, before.attempt) != (status.state, status.attempt):
            self._waits(status)

    def rest(self) -> None:
        """Write the last lines that do not end with a newline."""
        for data in self._shaping.rest():
            self._write(data)
        self._to.buffer.flush()

    def end_line(self) -> None:
        """On a terminal, end the line that the job left open."""
        if not self._whole_line and self._to.isatty():
            self._to.write("\n")
        self._whole_line = True

    def _write(self, data: bytes) -> None:
        self._to.buffer.write(data)
        self._whole_line = data.endswith(b"\n")

    def _does(self, before: JobDetail | None, status: JobDetail) -> None:
        known = before if before and before.attempt == status.attempt else None
        if status.phase in PHASES and (known is None or known.phase != status.phase):
            self._say(f"— {PHASES[status.phase]} —")
        if status.asked and (known is None or known.asked != status.asked):
            self._say(f"— asked to stop: {status.asked} —")

    def _begin(self, attempt: int) -> None:
        """Report the start of an attempt, and the ends of earlier ones not reported yet."""
        if attempt <= self._attempt or self._only not in (None, attempt):
            return
        history = self._backend.attempts(self._job_id)
        ended = decisive(history)
        # A reader who joins late does not need to hear about earlier attempts.
        for earlier in range(self._attempt or attempt, attempt):
            if earlier > self._attempt:
                self._began(earlier, history)
            if earlier > self._ended and earlier in ended:
                self._say(f"— {attempt_ending(ended[earlier])} —")
        self._attempt, self._ended = attempt, attempt - 1
        self._began(attempt, history)

    def _began(self, attempt: int, history: list[Attempt]) -> None:
        ended = {
            attempt_of_rank.rank: attempt_of_rank.worker
            for attempt_of_rank in history
            if attempt_of_rank.attempt == attempt
        }
        workers = ended or self._workers(attempt)
        rank = "" if self._rank is None else f", rank {self._rank}"
        wanted = workers.values() if self._rank is None else [workers.get(self._rank)]
        named = [name for name in wanted if name]
        where = f" on worker{'s' * (len(named) > 1)} {names_text(named)}" if named else ""
        self._say(f"— attempt {attempt}{rank}{where} —")

    def _workers(self, attempt: int) -> dict[int, str | None]:
        """Return the workers of a running attempt by rank."""
        now = self.known
        if now is None or now.attempt != attempt:
            now = self._backend.job(self._job_id)
        if now.attempt != attempt:
            return {}
        return {member.rank: member.worker for member in now.members} or {0: now.worker}

    def _waits(self, status: JobDetail) -> None:
        if status.attempt:
            self._begin(status.attempt)
            self._retries(status)
        elif status.state == "queued" and status.run_at is None and not self._served():
            self._say(f"job {status.job_id} {status.name!r} is queued, but no worker is connected")
        else:
            self._say(f"job {status.job_id} {status.name!r} is {status.state}")

    def _retries(self, status: JobDetail) -> None:
        """Report the end of the last attempt and what follows, or that a delayed retry is due."""
        if self._ended >= status.attempt or self._only not in (None, status.attempt):
            return
        ended = decisive(self._backend.attempts(self._job_id)).get(status.attempt)
        if ended is not None:
            self._ended = status.attempt
            self._say(f"— {attempt_ending(ended)}; {what_follows(status, ended.reason)} —")

    def _served(self) -> bool:
        return any(worker.status != "offline" for worker in self._backend.workers())

    def _say(self, text: str) -> None:
        self.end_line()
        narration.say(text, "dim")


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
    require_attempt(job, part.attempt)
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

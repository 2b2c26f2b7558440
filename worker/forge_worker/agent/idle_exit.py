"""Leaving when there is nothing to do, and the operator's program that may stop the machine."""

import os
import subprocess
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.leaving import Leaving
from forge_worker.agent.outbox import Outbox
from forge_worker.attempt import LiveAttempts
from forge_worker.loop import Loop
from forge_worker.machine.watched import Condition
from forge_worker.settings.sections import program_line

# How often a worker that was busy looks again, and how long the operator's program may take.
LOOK_S = 10.0
PROGRAM_S = 300.0
# How much of the program's output an error quotes.
QUOTED = 500

log = structlog.get_logger(__name__)


class IdleExit(Loop):
    """Has the worker leave after `after_s` seconds without a job, a transfer or an unreported end.

    A worker whose machine somebody else uses stays. The queue is asked before it leaves, so a job
    that comes at the last moment is taken.
    """

    name = "idle exit"

    def __init__(
        self,
        after_s: float,
        *,
        running: LiveAttempts,
        claims: Claims,
        outbox: Outbox,
        condition: Condition,
        leaving: Leaving,
    ) -> None:
        super().__init__(min(after_s, LOOK_S))
        self._after_s = after_s
        self._running = running
        self._claims = claims
        self._outbox = outbox
        self._condition = condition
        self._leaving = leaving
        self._busy_s = monotonic()

    def start(self) -> None:
        """Count from now: the worker may have waited for the queue for hours."""
        self._busy_s = monotonic()
        super().start()

    def step(self) -> None:
        """Leave if the worker has been idle for long enough."""
        if self._condition.leaving:
            return
        now = monotonic()
        if self._is_busy():
            self._busy_s = now
        idle_s = now - max(self._busy_s, self._running.ended_s)
        if idle_s >= self._after_s:
            self._leaving.retire(f"it was idle for {duration_text(self._after_s)}")
        self.period_s = min(max(self._after_s - idle_s, 1.0), LOOK_S)

    def _is_busy(self) -> bool:
        under_way = self._running.attempts() or self._claims.jobs or self._claims.waiting
        return bool(under_way or self._outbox.waiting() or self._condition.admission.reason)


class ProgramFailed(ForgeError):
    """The operator's program for an idle worker failed."""


def after_exit(line: str, worker: str) -> None:
    """Run the operator's program; its variable FORGE_WORKER_NAME is the worker's name.

    Raises:
        ProgramFailed: it could not be started, failed or took too long.
    """
    environment = {**os.environ, "FORGE_WORKER_NAME": worker}
    log.info("idle_exit_program", line=line)
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program, and no shell
            program_line(line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(line, str(error)) from error
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace").strip()[-QUOTED:]
        raise _failed(line, f"exit code {done.returncode}: {output}")


def _failed(line: str, why: str) -> ProgramFailed:
    return ProgramFailed(
        f"the program for an idle worker, {line!r}, failed: {why}",
        hint="the machine may still be running; a restarted worker tries again when it is idle",
    )

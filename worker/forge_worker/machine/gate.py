"""The gate: programs of the operator and checks of the machine before and after each job.

One that fails costs the job nothing. It sets the machine aside: no job starts there until the same
check passes, which is tried again after longer and longer pauses, or an admin lets it take jobs
again. The reason is kept on disk, so that a restart does not hide it.
"""

import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

from forge_worker.files.small_files import write_atomically
from forge_worker.loop import Loop

FILE = "set_aside.json"
PERIOD_S = 5.0
# The pauses between two tries while the machine is set aside.
REST_S, LONGEST_REST_S = 30.0, 1800.0
LOOK_S = 0.2
# How much of a program's output goes into the job's log, and how much into the reason.
LOGGED, QUOTED = 64 << 10, 300
# What the worker itself reads from its environment, tokens among it, is not for the programs.
OWN = "FORGE_"

log = structlog.get_logger(__name__)

Check = Callable[[Sequence[str]], str]


class GateClosed(ForgeError):
    """The machine is not fit for a job now."""


@dataclass(frozen=True, slots=True)
class Gated:
    """What a gate is about: the job's GPUs, and variables for the programs."""

    gpus: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class Gate(Loop):
    """Runs the programs and the check; `reason` is why the machine is set aside, or "".

    Args:
        folder: the worker's, where the reason is kept.
        before: the operator's command line before each job, or "".
        after: that after each job.
        limit_s: how long each may take.
        check: returns what is wrong with the machine and some GPUs, or "".
        changed: called when the machine is set aside or released.
    """

    name = "gate"

    def __init__(
        self,
        folder: Path,
        *,
        before: str = "",
        after: str = "",
        limit_s: float = 60.0,
        check: Check | None = None,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(PERIOD_S)
        self._file = folder / FILE
        self._before = before
        self._after = after
        self._limit_s = limit_s
        self._check = check
        self._changed = changed
        self._clock = clock
        self._lock = Lock()
        self._last = Gated()
        self._rest_s = REST_S
        self.reason = self._kept() if self.needed else ""
        self._next_s = clock()

    @property
    def needed(self) -> bool:
        """Whether there is anything to run."""
        return bool(self._before or self._after or self._check)

    def enter(self, job: Gated, note: Callable[[str], None], wanted: Callable[[], object]) -> None:
        """Run what comes before a job; `note` writes to its log, and `wanted` raises to end it.

        Raises:
            GateClosed: the machine is set aside, or is now.
        """
        if self.reason:
            raise GateClosed(self.reason)
        if why := self._fault(job, note, wanted):
            self.set_aside(why, job)
            raise GateClosed(why, hint="the job goes back to the queue, at no charge")

    def leave(self, job: Gated, note: Callable[[str], None], limit_s: float | None) -> None:
        """Run the program after a job, within `limit_s`; if it fails, set the machine aside."""
        if self._after:
            most_s = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
            if why := _failure("--after-job", self._after, job, most_s, note=note):
                self.set_aside(why, job)

    def set_aside(self, why: str, job: Gated) -> None:
        """Start no more jobs for this reason."""
        with self._lock:
            self.reason, self._last = why, job
            self._next_s = self._clock() + self._rest_s
        log.error("machine_set_aside", reason=why)
        # If it cannot be kept, it holds while this agent runs.
        with suppress(OSError):
            kept = {"why": why, "gpus": list(job.gpus), "variables": dict(job.variables)}
            write_atomically(self._file, json.dumps(kept), durable=False)
        self._changed()

    def release(self) -> None:
        """Let jobs start again: the check has passed, or an admin says so. Idempotent."""
        with self._lock:
            before, self.reason, self._rest_s = self.reason, "", REST_S
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        if before:
            log.info("machine_released")
            self._changed()

    def step(self) -> None:
        """Try again what set the machine aside, if that is due."""
        if not self.reason or self._clock() < self._next_s:
            return
        job = self._last
        why = self._fault(job, lambda _: None, lambda: None)
        if not why and self._after:
            why = _failure("--after-job", self._after, job, self._limit_s)
        if not why:
            self.release()
            return
        with self._lock:
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
            self._next_s = self._clock() + self._rest_s
            self.reason = why

    def condition(self) -> str:
        """Return why no job starts, for the machine's condition; "" if one may."""
        pause = duration_text(self._rest_s)
        return f"set aside: {self.reason}; tried again every {pause}" if self.reason else ""

    def _fault(self, job: Gated, note: Callable[[str], None], wanted: Callable[[], object]) -> str:
        if self._check is not None and (why := self._check(job.gpus)):
            return f"the check of the machine failed: {why}"
        if not self._before:
            return ""
        return _failure("--before-job", self._before, job, self._limit_s, note=note, wanted=wanted)

    def _kept(self) -> str:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            self._last = Gated(tuple(kept["gpus"]), kept["variables"])
            return str(kept["why"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("set_aside_unreadable", file=str(self._file), error=str(error))
            return ""


def forget(folder: Path) -> bool:
    """Forget why the machine of this worker, which must be stopped, is set aside."""
    was = (folder / FILE).exists()
    (folder / FILE).unlink(missing_ok=True)
    return was


def _failure(
    flag: str,
    line: str,
    job: Gated,
    limit_s: float,
    *,
    note: Callable[[str], None] = lambda _: None,
    wanted: Callable[[], object] = lambda: None,
) -> str:
    """Run a program of the operator; return what is wrong, or ""."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(OWN)}
    # A file instead of a pipe: what the program leaves running may keep its output open.
    with tempfile.TemporaryFile() as output:
        try:
            program = subprocess.Popen(  # noqa: S603 - the operator's own program, and no shell
                shlex.split(line),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, **job.variables, "FORGE_GATE": flag.strip("-")},
                start_new_session=True,
            )
        except OSError as error:
            return f"the program of {flag} could not be started: {error}"
        try:
            code = _ended(program, limit_s, wanted)
        finally:
            # Until it is reaped, its number is nobody else's.
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        output.seek(0)
        words = output.read(LOGGED).decode(errors="replace").strip()
    for text in words.splitlines():
        note(f"{flag}: {text}")
    if code == 0:
        return ""
    ended = f"took longer than {duration_text(limit_s)}" if code is None else f"exit code {code}"
    return f"the program of {flag} failed: {ended}{f': {words[-QUOTED:]}' if words else ''}"


def _ended(
    program: "subprocess.Popen[bytes]", limit_s: float, wanted: Callable[[], object]
) -> int | None:
    """Wait for a program; return its exit code, or None if it takes too long."""
    until_s = monotonic() + limit_s
    while (left_s := until_s - monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return program.wait(min(LOOK_S, left_s))
        wanted()
    return program.poll()

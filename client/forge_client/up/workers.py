"""The workers of a `forge up` as a group: start, supervise and stop them."""

import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from forge_schema.model.quantities import duration_text

from forge_client.errors import ClientError
from forge_client.up.child_process import ChildProcess, StopSignals

if TYPE_CHECKING:
    from forge_schema.model.worker import WorkerInfo

    from forge_client.backend import Backend

Say = Callable[[str], None]
MODULE = "forge_worker.main"

READY_S = 20.0
LOOK_S = 0.05
RETURN_LOOK_S = 2.0
STOP_S = 120.0
DRAIN, STOP, KILL = 1, 2, 3
SIGNALS = {DRAIN: signal.SIGINT, STOP: signal.SIGTERM, KILL: signal.SIGKILL}
WORDS = {
    DRAIN: "waiting for running jobs to end; Ctrl-C again gives them back to the queue",
    STOP: "giving running jobs back to the queue",
    KILL: "killing the workers",
}


class Workers:
    """Reads the workers' status from the queue, to which they report it."""

    def __init__(self, processes: Sequence[ChildProcess], backend: "Backend", say: Say) -> None:
        self._processes = processes
        self._backend = backend
        self._say = say
        self._left: set[str] = set()
        self._next_look = 0.0

    def start(self, asked: StopSignals) -> None:
        """Start them and wait until all are connected, one has died, or time is up."""
        began = time.monotonic()
        for process in self._processes:
            process.start()
        while time.monotonic() - began < READY_S and not asked.wait(LOOK_S):
            names = {row.name for row in self._rows() if row.silent_s < time.monotonic() - began}
            if all(p.name in names or not p.alive for p in self._processes):
                return

    def look_after(self) -> None:
        """Restart dead workers; one that left because it was drained comes back undrained."""
        for process in self._processes:
            if process.name in self._left:
                continue
            status = process.look_after()
            if status == 0:
                self._left.add(process.name)
                self._say(f"worker {process.name} drained and left")
            elif status is not None:
                self._say(
                    f"worker {process.name} exited with status {status}; restarting it in"
                    f" {duration_text(process.rest_s)}; see {process.log}"
                )
        if self._left and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + RETURN_LOOK_S
            self._left -= {row.name for row in self._rows() if row.command is None}

    def stop(self, asked: StopSignals, meanwhile: Callable[[], None]) -> None:
        """Stop them: drain, stop or kill, depending on the urgency so far.

        Args:
            asked: the urgency.
            meanwhile: called repeatedly until they have ended.
        """
        told_urgency = 0
        deadline = float("inf")
        while any(process.alive for process in self._processes):
            urgency = KILL if time.monotonic() > deadline else min(asked.urgency or STOP, KILL)
            if urgency > told_urgency:
                told_urgency = self._tell(urgency)
                if told_urgency > DRAIN:
                    deadline = min(deadline, time.monotonic() + STOP_S)
            asked.wait(LOOK_S)
            meanwhile()
        for process in self._processes:
            process.forget()

    def _tell(self, urgency: int) -> int:
        if urgency == KILL or any(row.leases for row in self._rows()):
            self._say(WORDS[urgency])
        for process in self._processes:
            process.ask(SIGNALS[urgency])
        return urgency

    def _rows(self) -> "list[WorkerInfo]":
        ours = {process.name for process in self._processes}
        try:
            return [row for row in self._backend.workers() if row.name in ours]
        except ClientError:
            # The database is briefly away; the code that supervises it reports that.
            return []

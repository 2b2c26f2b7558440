"""One job in a container that it shares, watched through an engine that may hang or forget."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import structlog
from docker.errors import NotFound

from forge_worker.runners.container import ENGINE_PATIENCE_S, FAILED
from forge_worker.runners.runner import EngineUnreachable, Exit

if TYPE_CHECKING:
    from forge_worker.runners.pipe import Pipe
    from forge_worker.runners.shared_container import Found, SharedContainer, SharedJob
    from forge_worker.runners.use import JobUse

log = structlog.get_logger(__name__)

# An engine tells nobody when what was executed ends, so it is asked: soon, then less often.
SOONEST_S = 0.02
SLOWEST_S = 0.25
KILLED = 137
# How long a container that cannot be looked into whole may take to be seen ended.
DOUBT_S = 10.0


class Back(Protocol):
    """Takes a container back."""

    def __call__(self, container: SharedContainer, *, clean: bool) -> None: ...


class SharedHandle:
    """A job in a shared container, which it gives back when it has ended."""

    def __init__(
        self, container: SharedContainer, job: SharedJob, pipe: Pipe, grace_s: float, *, back: Back
    ) -> None:
        self._container = container
        self._job = job
        self._pipe = pipe
        self._grace_s = grace_s
        self._back = back
        self._exit: Exit | None = None
        self._killed = False
        self._lock = threading.Lock()
        self._answered = time.monotonic()
        self._pause = SOONEST_S

    def wait(self, timeout: float) -> Exit | None:
        """Return the exit within `timeout` seconds, or None: still running."""
        deadline = time.monotonic() + timeout
        self._look()
        while self._exit is None and (left := deadline - time.monotonic()) > 0:
            threading.Event().wait(min(left, self._pause))
            self._pause = min(self._pause * 1.3, SLOWEST_S)
            self._look()
        return self._exit

    def signal(self, signum: int) -> None:
        """Send a signal to the job's main process; one that is gone is fine."""
        if self._exit is not None:
            return
        try:
            self._container.signal(self._job, str(int(signum)))
        except FAILED as error:
            log.warning("signal not delivered", container=self._container.name, error=str(error))

    def stop(self) -> None:
        """Send SIGTERM to the main process; after the grace the container goes, with all in it."""
        if self.wait(0) is None:
            self.signal(15)
            if self.wait(self._grace_s) is None:
                self._kill()
        while self.wait(SLOWEST_S) is None:
            self._kill()

    def used(self) -> JobUse | None:
        """Return None: what the container has used was not this job alone."""
        return None

    def remove(self) -> None:
        """Leave nothing of the job behind. May be repeated.

        Raises:
            EngineUnreachable: its container may still be there.
        """
        with self._lock:
            if self._exit is None:
                self._killed = True
                self._container.remove()
                self._exit = Exit(KILLED)
        self._pipe.finish()

    def _kill(self) -> None:
        self._killed = True
        with suppress(EngineUnreachable):
            self._container.remove()

    def _look(self) -> None:
        with self._lock:
            if self._exit is not None:
                return
            try:
                state = self._container.state(self._job)
            except NotFound:
                self._end(None)
            except FAILED as error:
                if time.monotonic() - self._answered > ENGINE_PATIENCE_S:
                    self._end(None, f"the engine did not answer: {error}")
            else:
                self._answered = time.monotonic()
                if not state["Running"]:
                    self._end(state["ExitCode"])

    def _end(self, code: int | None, detail: str = "") -> None:
        seen = self._settled(code, detail)
        lost = self._pipe.finish()
        self._exit = Exit(seen.code, seen.oom_killed, "; ".join(filter(None, (seen.detail, lost))))

    def _settled(self, code: int | None, detail: str) -> Exit:
        """Return the exit, once the container waits for another job or is gone."""
        if self._killed:
            with suppress(EngineUnreachable):
                self._container.remove()
            return Exit(KILLED)
        found = self._found()
        if found is None:
            return self._without_container(detail)
        self._back(self._container, clean=found.clean and code is not None)
        return Exit(code, found.oom, detail)

    def _found(self) -> Found | None:
        """Return what is in the container, None when it has ended.

        What ends takes its processes with it before its engine knows, so while there is doubt it
        is asked again.
        """
        deadline = time.monotonic() + DOUBT_S
        with suppress(*FAILED):
            while not (found := self._container.look()).whole and time.monotonic() < deadline:
                if not self._container.running():
                    return None
                threading.Event().wait(SLOWEST_S)
            return found
        return None

    def _without_container(self, detail: str) -> Exit:
        """Return the exit of a job whose container ended: whatever its code, others chose it."""
        oom = False
        with suppress(*FAILED):
            oom = self._container.ended_for_memory()
        self._back(self._container, clean=False)
        return Exit(None, oom, detail or "the container ended under the job")

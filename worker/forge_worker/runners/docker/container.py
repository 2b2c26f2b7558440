"""A job's container, watched through an engine that may hang, restart or forget."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
import weakref
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

import structlog
from docker.errors import APIError, NotFound
from docker.models.containers import ContainerCollection
from forge_schema.model.quantities import duration_text

from forge_worker.runners.docker.engine import (
    UNREACHABLE,
    Engine,
    EngineRun,
    engine_run,
    is_silence,
    stopped_with,
    timed_out,
)
from forge_worker.runners.docker.first_shell import STOP, TO_GROUP, Inside, Telling
from forge_worker.runners.docker.network import remove_network
from forge_worker.runners.docker.usage import Gauge, names_container
from forge_worker.runners.engines import knock
from forge_worker.runners.process.notice import catches, said_of
from forge_worker.runners.runner import EngineUnreachable, Exit, unwatched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forge_worker.runners.docker.pipe import Pipe
    from forge_worker.runners.process.descendants import JobUse
    from forge_worker.runners.process.notice import Process

MILLISECONDS = 1000
# A kill takes a moment, because the kernel reclaims the memory first.
KILL_S = 5.0

SLICE_S = 10.0
WAKE_S = 0.5
PAUSE_S = 0.2
ENGINE_PATIENCE_S = 120.0
REMOVE_PATIENCE_S = 60.0
FAILED = (*UNREACHABLE, APIError, EngineUnreachable)
LAST_LINES = 20
# The engine's end time of a container whose end it did not see; the code may then be 0.
NEVER = "0001-01-01"

log = structlog.get_logger(__name__)


class MainProcess:
    """A container's main process, held by a descriptor so that its id cannot be reused."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self._descriptor = descriptor
        self._pid = pid
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, pid: int, container: str) -> MainProcess | None:
        """Return the container's process with this id; None if it is not visible from here."""
        try:
            process = cls(os.pidfd_open(pid), pid)
        except OSError:
            return None
        # An agent in a container sees other process ids than the engine.
        return process if names_container(pid, container) else None

    def ended(self, timeout: float = 0.0, wake: int | None = None) -> bool:
        """Return whether the container has ended, waiting up to `timeout` seconds for that.

        The wait ends if the descriptor `wake` can be read from.
        """
        return self._descriptor in readable(timeout, self._descriptor, wake)

    def inside(self) -> Inside | None:
        """Return the processes of the container; None if they have ended or are not this user's."""
        return None if self.ended() else Inside.of(self._pid)

    def signal(self, signum: int) -> None:
        """Send a signal; a process that has ended is no error.

        Raises:
            PermissionError: this user may not send it.
        """
        try:
            signal.pidfd_send_signal(self._descriptor, signum)
        except ProcessLookupError:
            return


def readable(timeout: float, *descriptors: int | None) -> set[int]:
    """Wait up to `timeout` seconds until any of these can be read from, and return those."""
    poll = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(timeout * MILLISECONDS)}


class Created(ContainerCollection):
    """Creates containers without a look at each of them afterwards."""

    def get(self, container_id: str) -> str:  # type: ignore[override]
        """Return the id: nothing else is needed."""
        return container_id


class Containers:
    """Containers by name. Thread-safe. A container that is not in use may be removed.

    `released` is set when one is no longer in use.
    """

    def __init__(self) -> None:
        self.released = threading.Event()
        self._lock = Lock()
        self._in_use: set[str] = set()
        self._remaining: dict[str, MainProcess | None] = {}

    def use(self, name: str) -> None:
        """Record that a container of this name is in use or about to be created."""
        with self._lock:
            self._in_use.add(name)
            self._remaining.pop(name, None)

    def used(self, name: str) -> bool:
        with self._lock:
            return name in self._in_use

    def gone(self, name: str) -> None:
        """Record that a container was removed."""
        with self._lock:
            self._in_use.discard(name)
            self._remaining.pop(name, None)
        self.released.set()

    def remains(self, name: str, process: MainProcess | None) -> None:
        """Record that a container could not be removed; `process` is None if unknown."""
        with self._lock:
            self._in_use.discard(name)
            self._remaining[name] = process
        self.released.set()

    @property
    def remaining(self) -> set[str]:
        """The containers that could not be removed."""
        with self._lock:
            return set(self._remaining)

    def may_live(self, name: str) -> bool:
        """Kill what can be killed of a container, and return whether any of it may be alive."""
        with self._lock:
            processes = [
                process
                for held, process in self._remaining.items()
                if held == name or held.startswith(f"{name}-")
            ]
        return not all(process is not None and killed(process) for process in processes)


def killed(process: MainProcess) -> bool:
    """Kill a container by its main process, and return whether it is dead."""
    try:
        process.signal(signal.SIGKILL)
    except PermissionError:
        return process.ended()
    return process.ended(KILL_S)


class ContainerHandle:
    """A job in a container, identified by its name, which contains the job's token.

    `since` is the engine's run in which the container started; `watched` is False if a stop of the
    engine since then could have gone unnoticed. `alone_s` is for how long a container that was
    found ended had had no agent. While the engine is unreachable, the main process is watched and
    signalled through the kernel.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        pipe: Pipe,
        grace_s: float,
        *,
        containers: Containers,
        since: EngineRun,
        watched: bool = True,
        alone_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._pipe = pipe
        self._grace_s = grace_s
        self._containers = containers
        self._process: MainProcess | None = None
        # The job was killed without the engine, so there is no exit code to wait for.
        self._killed = False
        self._told = False
        self._exit: Exit | None = None
        self._lock = threading.Lock()
        # What the first shell ran when it was first looked at.
        self._main = 0
        # What was killed when the time to stop was up.
        self._cut_off: list[Process] = []
        self._gauge = Gauge(engine, name)
        self._answered = time.monotonic()
        self._since = since
        self._doubtful = not watched
        self._alone_s = alone_s

    remembers = False

    def wait(self, timeout: float, wake: int | None = None) -> Exit | None:
        """Return the exit, or None if the job still runs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if not self._runs(0.0):
            self._look()
        while self._exit is None and (left := deadline - time.monotonic()) > 0:
            if readable(0.0, wake):
                break
            if not self._runs(min(left, SLICE_S), wake):
                # A request to the engine cannot be woken.
                self._await_change(min(left, SLICE_S if wake is None else WAKE_S))
                self._look()
        return self._exit

    def signal(self, signum: int, notice_s: float = 0.0) -> None:
        """Have the job stop; as in `Handle`."""
        self._told = True
        done = self._kill() if signum == signal.SIGKILL else self._tell(signum, notice_s)
        if not done:
            self._signal_init(signum)

    def catches(self, signum: int) -> bool | None:
        """Return whether a process of the job has a handler for a signal; as in `Handle`."""
        inside = self._inside()
        return catches([process.pid for process in inside.job(signum)], signum) if inside else None

    def _kill(self) -> bool:
        """Kill each process of the job, so that the container ends with the job's own code."""
        until = time.monotonic() + KILL_S
        while (inside := self._inside()) is not None and time.monotonic() < until:
            self._cut_off = self._cut_off or inside.job(signal.SIGKILL)
            inside.kill()
            self._runs(PAUSE_S)
        return self._process is not None and self._process.ended()

    def _tell(self, signum: int, notice_s: float) -> bool:
        """Have each process signalled by this machine; return False if they are not seen here."""
        self.wait(0)
        inside = self._inside()
        if inside is None or self._process is None:
            self._signal_init(STOP)
            return False
        try:
            knock()
        except OSError:
            self._killed = True
        Telling(inside, signum, notice_s, self._process.ended).start()
        return True

    def _inside(self) -> Inside | None:
        """Return the container's processes; None if it has ended, or they are not seen here."""
        inside = None if self._process is None else self._process.inside()
        if inside is not None and not self._main:
            self._main = inside.main
        return None if inside is None else replace(inside, main=self._main)

    def _signal_init(self, signum: int) -> None:
        """Signal the container's init, which passes it on to the job's group."""
        try:
            api = self._engine.client.api
            if self._engine.kind.podman and signum not in {signal.SIGKILL, STOP}:
                # Its init passes signals on to the shell alone, which waits.
                words = ["/bin/sh", "-c", TO_GROUP, "sh", str(int(signum))]
                api.exec_start(api.exec_create(self._name, words)["Id"], detach=True)
            else:
                api.kill(self._name, int(signum))
        except FAILED as error:
            if is_silence(error):
                self._signal_by_kernel(signum, error)

    def _signal_by_kernel(self, signum: int, silence: Exception) -> None:
        error: Exception = silence
        if self._process is not None:
            try:
                self._process.signal(signum)
            except PermissionError as refusal:
                error = refusal
            else:
                self._killed = True
                return
        log.warning("signal_not_delivered", container=self._name, error=str(error))

    def stop(self) -> None:
        """Have the job stop within its grace, and wait for the end; as in `Handle`."""
        if self.wait(0) is None:
            self.signal(signal.SIGTERM, self._grace_s)
            if self.wait(self._grace_s) is None:
                self.signal(signal.SIGKILL)
        while self.wait(SLICE_S) is None:
            self.signal(signal.SIGKILL)

    def used(self) -> JobUse | None:
        """Return what the job has used so far, or None if that is no longer known."""
        return self._gauge.read() if self._exit is None else None

    def remove(self) -> None:
        """Kill what still runs and remove the container and its pipe. May be repeated.

        If the engine is unreachable, the container is recorded as remaining, and killed without it.
        """
        try:
            remove_container(self._engine, self._name, self._process)
            remove_network(self._engine, self._name)
        except EngineUnreachable as error:
            log.warning("left_behind", container=self._name, error=error.message)
            self._containers.remains(self._name, self._process)
            self._killed = self._process is not None
        else:
            self._containers.gone(self._name)
        finally:
            self._pipe.finish()

    def _runs(self, seconds: float, wake: int | None = None) -> bool:
        """Return whether the kernel says that the job runs, having waited for its end.

        Then the engine need not be asked. An engine whose process is not visible is asked all the
        same, unless its containers outlive it: otherwise, its restart would go unnoticed.
        """
        watched = self._since.process or self._since.keeps
        if self._exit is not None or self._process is None or not watched:
            return False
        if self._process.ended(seconds, wake):
            return False
        self._answered = time.monotonic()
        return True

    def _look(self) -> None:
        """Ask the engine for the container's state, the only reliable source."""
        if self._exit is not None:
            return
        try:
            container = self._engine.client.api.inspect_container(self._name)
        except NotFound:
            self._end(Exit(code=None, detail="the container is gone"))
        except FAILED as error:
            self._silent(error)
        else:
            self._answered = time.monotonic()
            if self._process is None and (pid := container["State"]["Pid"]):
                self._process = MainProcess.of(pid, container["Id"])
                self._gauge.measure(pid, container["Id"])
            self._judge(container["State"], container["Id"])

    def _judge(self, state: dict[str, Any], container: str) -> None:
        if state["Running"] or state["Status"] == "created":
            self._doubtful = False
        elif state["FinishedAt"].startswith(NEVER):
            self._end(Exit(code=None, detail="the engine did not see how the job ended"))
        elif not self._vouched(state["ExitCode"]):
            # An engine that stops also stops its containers. A job that handles SIGTERM cleanly
            # then exits with 0 and would look successful.
            detail = (
                f"the engine stopped while the job ran, so its code {state['ExitCode']} is void"
            )
            self._end(Exit(None, state["OOMKilled"], detail, _finished_ns(state)))
        elif by := "" if self._told else stopped_with(self._engine, container, state):
            # As when the engine stops: it may have saved its state and exited with 0.
            detail = f"somebody stopped its container by the engine ({by})"
            at_ns = _finished_ns(state)
            self._end(Exit(None, state["OOMKilled"], detail, at_ns, state["ExitCode"]))
        else:
            at_ns = _finished_ns(state)
            seen = Exit(state["ExitCode"], state["OOMKilled"], state["Error"], at_ns)
            self._end(seen if self._alone_s is None else unwatched(seen, self._alone_s))

    def _vouched(self, code: int) -> bool:
        """Return whether the job certainly ended so by itself; False if nobody can say."""
        if not self._doubtful and (not self._since.process or self._since.lasts()):
            return True
        with contextlib.suppress(*FAILED):
            return engine_run(self._engine).vouches(self._since, code)
        return False

    def _silent(self, error: Exception) -> None:
        """Keep waiting while the process lives; otherwise wait a limited time for the engine."""
        self._doubtful = True
        lives = self._process is not None and not self._process.ended()
        if lives:
            self._answered = time.monotonic()
        patience_s = 0.0 if self._killed else ENGINE_PATIENCE_S
        if not lives and time.monotonic() - self._answered > patience_s:
            detail = f"the job ended while the container engine did not answer: {error}"
            if self._process is None:
                period = duration_text(ENGINE_PATIENCE_S)
                detail = f"the container engine did not answer for {period}: {error}"
            self._end(Exit(code=None, detail=detail))

    def _await_change(self, seconds: float) -> None:
        """Return when the container ends, the connection does, or after `seconds`."""
        try:
            self._engine.client.api.wait(self._name, timeout=seconds)  # type: ignore[arg-type]  # a float is fine
        except NotFound:
            return
        except FAILED as error:
            if timed_out(error):
                return
            self._doubtful = True
            threading.Event().wait(min(seconds, PAUSE_S))

    def _end(self, seen: Exit) -> None:
        with self._lock:
            if self._exit is not None:
                return
            last = self._unredirected() if seen.code else b""
            if self._cut_off and not seen.oom_killed:
                last += said_of(self._cut_off, "when the time to stop was up")
            lost = self._pipe.finish(last)
            detail = "; ".join(filter(None, (seen.detail, lost)))
            self._exit = replace(seen, detail=detail)

    def _unredirected(self) -> bytes:
        """Return the output from before the redirection, which says why that failed."""
        with contextlib.suppress(*FAILED):
            logs: bytes = self._engine.client.api.logs(self._name, tail=LAST_LINES)
            return logs
        return b""


def remove_container(engine: Engine, name: str, process: MainProcess | None = None) -> None:
    """Remove a container by force, and wait until it is gone.

    While the engine is unreachable, a container with a known main process is killed without
    waiting.

    Raises:
        EngineUnreachable: it could not be removed.
    """
    deadline = time.monotonic() + REMOVE_PATIENCE_S
    while True:
        try:
            with contextlib.suppress(NotFound):
                engine.client.api.remove_container(name, v=True, force=True)
        except FAILED as error:  # already being removed, or the engine is unreachable
            dead = is_silence(error) and process is not None and killed(process)
            if dead or time.monotonic() > deadline:
                raise EngineUnreachable(
                    f"the container {name} could not be removed: {error}",
                    hint=f"remove it, as with `docker rm -f {name}`, when the engine answers again",
                ) from error
        else:
            return
        threading.Event().wait(PAUSE_S / 10)


def _finished_ns(state: Mapping[str, Any]) -> int:
    """Return when a container ended, since the epoch; 0 if the engine does not say."""
    try:
        return int(datetime.fromisoformat(state["FinishedAt"]).timestamp() * 1e9)
    except ValueError:
        return 0

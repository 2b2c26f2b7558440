"""The connection to the container engine, and detection of its restarts.

A Docker engine that stops also stops its containers, so their exit code is not the job's. An exit
code counts only if the engine did not stop meanwhile, or keeps containers running: with Docker's
live-restore, and always with Podman, where each container has a process that watches it.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT, SIGTERM, Signals
from typing import TYPE_CHECKING, Any

import psutil
import requests
import urllib3
from docker.errors import APIError, DockerException, NotFound

from forge_worker.runners.engines import EngineKind, address, connected, kind_of, knock, listener
from forge_worker.runners.runner import EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker import DockerClient

OLDEST_API = "1.41"
# Podman takes seconds for an answer on a busy machine.
ANSWER_TIMEOUT_S = 10
CALL_TIMEOUT_S = 120
SERVER_ERROR = 500
UNREACHABLE = (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError)
PROGRAM = "dockerd"
# An engine that is started again gives this code to a container that ended meanwhile, if
# containerd has forgotten how: 26.1 does so with containerd 1.7, 20.10 with 1.4 knew the code.
UNSEEN = 255
# A container ended so long ago at most if nobody was late to look, and a signal is noted so soon.
SOON_S, NOTED_S = 60.0, 1.0
# By the others, somebody may want something else of a job.
STOPPING = {SIGTERM, SIGINT, SIGQUIT, SIGKILL}
# With socket activation, init listens until the engine is started.
MANAGER = 1
# The place of `starttime` in /proc/<pid>/stat, after the program's name.
BEGAN = 19


class Engine:
    """This machine's engine, at `address()`."""

    def __init__(self) -> None:
        self._threads = threading.local()
        # The engine's process, and the version that it speaks.
        self._known: tuple[str, str | None] = ("", None)
        # By the address: no engine becomes another one there.
        self._kinds: dict[str, EngineKind] = {}

    @property
    def client(self) -> DockerClient:
        """The calling thread's own client, since clients are not thread-safe.

        Raises:
            EngineUnreachable: the engine does not answer.
        """
        try:
            knock()
            client: DockerClient | None = getattr(self._threads, "client", None)
            if client is None:
                client = self._threads.client = self._made()
        except (DockerException, OSError) as error:
            raise EngineUnreachable(
                f"the container engine does not answer: {error}",
                hint="start it, or check that this user may access its socket",
            ) from error
        return client

    @property
    def kind(self) -> EngineKind:
        """What the engine is; it is asked once.

        Raises:
            EngineUnreachable, or an error of the client: the engine does not answer.
        """
        place = address()
        if place not in self._kinds:
            self._kinds[place] = kind_of(self.client.info())
        return self._kinds[place]

    def _made(self) -> DockerClient:
        """Make a client; the first of each run of the engine asks which version it speaks."""
        process, (known, version) = _process(), self._known
        if not process or process != known:
            version = None
        client: DockerClient = connected(timeout=CALL_TIMEOUT_S, version=version)
        self._known = (process, client.api.api_version)
        return client


def engine_answers() -> bool:
    """Return within about ten seconds whether a Linux engine answers here."""
    with suppress(DockerException, *UNREACHABLE, OSError):
        knock()
        with closing(connected(timeout=ANSWER_TIMEOUT_S, version=OLDEST_API)) as client:
            # Without a version in the request: from version 29 on, Docker refuses those below 1.44.
            return client.api.version(api_version=False).get("Os") == "linux"
    return False


def timed_out(error: Exception) -> bool:
    """Return whether an error is a time-out, rather than an unreachable engine."""
    return isinstance(error, requests.Timeout) or any(
        isinstance(cause, urllib3.exceptions.ReadTimeoutError) for cause in error.args
    )


def is_silence(error: Exception) -> bool:
    """Return whether an error means that the engine cannot answer now, rather than a refusal."""
    if isinstance(error, APIError):
        return not isinstance(error, NotFound) and (error.status_code or 0) >= SERVER_ERROR
    return True


@dataclass(frozen=True, slots=True)
class EngineRun:
    """A run of the engine; `process` is "" if it is not visible.

    `keeps` means that containers run on without it, and `watches` that each has a process that sees
    its end, whatever becomes of the engine.
    """

    process: str = ""
    keeps: bool = False
    watches: bool = False

    def vouches(self, since: EngineRun, code: int) -> bool:
        """Return whether a container from run `since` ended by itself, and with this code."""
        if self.process and self.process == since.process:
            return True
        return self.keeps and since.keeps and (self.watches or code != UNSEEN)

    def lasts(self) -> bool:
        """Return whether the engine's process is certainly still the same; asks only the kernel."""
        pid, _, began = self.process.partition(":")
        with suppress(OSError):
            return _began(pid) == began
        return False

    def label(self) -> str:
        """Return the run as a label's value, for `of_label`."""
        return f"{self.process} {'keeps' if self.keeps else 'ends'}"


def of_label(value: str) -> EngineRun:
    """Return the run in a label's value; an unknown run if it is malformed."""
    process, _, keeps = value.partition(" ")
    return EngineRun(process, keeps == "keeps")


def engine_run(engine: Engine, known: EngineRun | None = None) -> EngineRun:
    """Return the engine's current run; the engine is not asked if it is still the `known` one.

    Raises:
        EngineUnreachable, or an error of the client: the engine does not answer.
    """
    process = _process()
    if known is not None and process and process == known.process:
        return known
    info = engine.client.info()
    watches = kind_of(info).outlived
    return EngineRun(process, bool(info.get("LiveRestoreEnabled")) or watches, watches)


def stopped_with(engine: Engine, container: str, state: Mapping[str, Any]) -> str:
    """Return the signal by which somebody had the engine stop a container that has ended, or "".

    The engine remembers its newest 256 events. Podman's are not asked.
    """
    with suppress(DockerException, EngineUnreachable, *UNREACHABLE, ValueError, KeyError):
        if not engine.kind.podman:
            began, ended = map(_moment, (state["StartedAt"], state["FinishedAt"]))
            killed = engine.client.api.events(  # type: ignore[call-overload]  # a float is fine
                since=int(began),
                until=_past(ended),
                filters={"container": container, "event": "kill"},
                decode=True,
            )
            numbers = [int(event["Actor"]["Attributes"]["signal"]) for event in killed]
            return next((Signals(it).name for it in numbers if it in STOPPING), "")
    return ""


def _past(ended: float) -> float:
    """Return when all about an end is known; the engine waits for a moment that is yet to come.

    It notes a signal when that is delivered, which may be after the end. The clock of this process
    need not be the engine's.
    """
    now = time.time()
    return now if 0 <= now - ended < SOON_S else ended + NOTED_S


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _process() -> str:
    """Return the id of the process behind the engine's socket, and when it began."""
    with suppress(OSError, psutil.Error):
        process = psutil.Process(pid) if (pid := listener()) != MANAGER else _only_one()
        if process is not None and process.name() == PROGRAM:
            return f"{process.pid}:{_began(process.pid)}"
    return ""


def _began(pid: int | str) -> str:
    """Return when a process began, in ticks since the boot: wall-clock time may be set anew."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[BEGAN]


def _only_one() -> psutil.Process | None:
    processes = [
        process for process in psutil.process_iter(["name"]) if process.info["name"] == PROGRAM
    ]
    return processes[0] if len(processes) == 1 else None

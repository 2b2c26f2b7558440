"""The connection to the Docker engine, and detection of its restarts.

An engine that stops also stops its containers, so their exit code is not the job's. An exit code
counts only if the engine did not stop meanwhile, or keeps containers running (live-restore).
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import psutil
import requests
import urllib3
from docker.errors import APIError, DockerException, NotFound

from forge_worker.runners.runner import EngineUnreachable

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_HOST = "unix:///var/run/docker.sock"
OLDEST_API = "1.41"
PING_TIMEOUT_S = 3
CALL_TIMEOUT_S = 120
SERVER_ERROR = 500
UNREACHABLE = (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError)
PROGRAM = "dockerd"
# With socket activation, init listens until the engine is started.
MANAGER = 1
# The place of `starttime` in /proc/<pid>/stat, after the program's name.
BEGAN = 19
CREDENTIALS = struct.Struct("iII")


class Engine:
    """The engine that the environment names (DOCKER_HOST, else the local socket)."""

    def __init__(self) -> None:
        self._threads = threading.local()
        # The engine's process, and the version that it speaks.
        self._known: tuple[str, str | None] = ("", None)

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
                f"the Docker engine does not answer: {error}",
                hint="start it, or check that this user may access its socket",
            ) from error
        return client

    def _made(self) -> DockerClient:
        """Make a client; the first of each run of the engine asks which version it speaks."""
        process, (known, version) = _process(), self._known
        if not process or process != known:
            version = None
        client: DockerClient = docker.from_env(timeout=CALL_TIMEOUT_S, version=version)
        self._known = (process, client.api.api_version)
        return client


def engine_answers() -> bool:
    """Return within about three seconds whether a Linux engine answers here."""
    with suppress(DockerException, *UNREACHABLE, OSError):
        knock()
        with closing(docker.from_env(timeout=PING_TIMEOUT_S, version=OLDEST_API)) as client:
            return client.version().get("Os") == "linux"
    return False


def knock() -> None:
    """Check that the engine's socket accepts connections; docker-py leaks a socket if not.

    Raises:
        OSError: it does not.
    """
    scheme, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(PING_TIMEOUT_S)
            door.connect(path)


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
    """A run of the engine; `process` is "" if it is not visible, `keeps` means live-restore."""

    process: str = ""
    keeps: bool = False

    def vouches(self, since: EngineRun) -> bool:
        """Return whether containers from run `since` cannot have been stopped by the engine."""
        same = self.process != "" and self.process == since.process
        return same or (self.keeps and since.keeps)

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
    return EngineRun(process, bool(engine.client.info().get("LiveRestoreEnabled")))


def _process() -> str:
    """Return the id of the process behind the engine's socket, and when it began."""
    with suppress(OSError, psutil.Error):
        found = psutil.Process(pid) if (pid := _listener()) != MANAGER else _only_one()
        if found is not None and found.name() == PROGRAM:
            return f"{found.pid}:{_began(found.pid)}"
    return ""


def _began(pid: int | str) -> str:
    """Return when a process began, in ticks since the boot: wall-clock time may be set anew.

    Raises:
        OSError: it is not there.
    """
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[BEGAN]


def _listener() -> int:
    """Return the process that listens on the engine's socket; 0 if it is not visible."""
    scheme, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    if scheme != "unix":
        return 0
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(PING_TIMEOUT_S)
        door.connect(path)
        said = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid: int = CREDENTIALS.unpack(said)[0]
    return pid


def _only_one() -> psutil.Process | None:
    found = [one for one in psutil.process_iter(["name"]) if one.info["name"] == PROGRAM]
    return found[0] if len(found) == 1 else None

"""The connection to the Docker engine, and which run of the engine answers.

An engine that stops ends its containers: the exit code is then the engine's doing, and no result of
the job. It counts only if the engine did not stop meanwhile, or leaves containers alone
(live-restore).
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
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
# Who listens for an engine that is started with its first caller.
MANAGER = 1
CREDENTIALS = struct.Struct("iII")


class Engine:
    """The engine that the environment names (DOCKER_HOST, else the local socket)."""

    def __init__(self) -> None:
        self._threads = threading.local()

    @property
    def client(self) -> DockerClient:
        """The calling thread's own client: they are not safe to share.

        Raises:
            EngineUnreachable: nothing answers.
        """
        try:
            knock()
            client: DockerClient | None = getattr(self._threads, "client", None)
            if client is None:
                client = self._threads.client = docker.from_env(timeout=CALL_TIMEOUT_S)
        except (DockerException, OSError) as error:
            raise EngineUnreachable(
                f"the Docker engine does not answer: {error}",
                hint="Start it, or see that this user may reach its socket.",
            ) from error
        return client


def engine_answers() -> bool:
    """Tell within about three seconds whether a Linux engine answers here."""
    with suppress(DockerException, *UNREACHABLE, OSError):
        knock()
        with closing(docker.from_env(timeout=PING_TIMEOUT_S, version=OLDEST_API)) as client:
            return client.version().get("Os") == "linux"
    return False


def knock() -> None:
    """See that the engine's socket takes connections; docker-py leaks its own when one does not.

    Raises:
        OSError: it does not.
    """
    scheme, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(PING_TIMEOUT_S)
            door.connect(path)


def timed_out(error: Exception) -> bool:
    """Tell a call that took longer than it was given from an engine that is not there."""
    return isinstance(error, requests.Timeout) or any(
        isinstance(cause, urllib3.exceptions.ReadTimeoutError) for cause in error.args
    )


def is_silence(error: Exception) -> bool:
    """Tell an engine that cannot answer now from one that answered no."""
    if isinstance(error, APIError):
        return not isinstance(error, NotFound) and (error.status_code or 0) >= SERVER_ERROR
    return True


@dataclass(frozen=True, slots=True)
class EngineRun:
    """`process` is empty where the engine's process cannot be seen; `keeps` is live-restore."""

    process: str = ""
    keeps: bool = False

    def vouches(self, since: EngineRun) -> bool:
        """Tell whether containers that were there in `since` ended by themselves, if at all."""
        same = self.process != "" and self.process == since.process
        return same or (self.keeps and since.keeps)

    def label(self) -> str:
        """Return it as a label's value, for `of_label`."""
        return f"{self.process} {'keeps' if self.keeps else 'ends'}"


def of_label(value: str) -> EngineRun:
    """Return the run of a label; an unknown one, if it is none."""
    process, _, keeps = value.partition(" ")
    return EngineRun(process, keeps == "keeps")


def engine_run(engine: Engine, known: EngineRun | None = None) -> EngineRun:
    """Return the run that answers now; if it is the `known` one, without asking the engine.

    Raises:
        EngineUnreachable, or an error of the client's: none does.
    """
    process = _process()
    if known is not None and process and process == known.process:
        return known
    return EngineRun(process, bool(engine.client.info().get("LiveRestoreEnabled")))


def _process() -> str:
    """Name the process behind the engine's socket, by its id and its start."""
    with suppress(OSError, psutil.Error):
        found = psutil.Process(pid) if (pid := _listener()) != MANAGER else _only_one()
        if found is not None and found.name() == PROGRAM:
            return f"{found.pid}:{found.create_time()}"
    return ""


def _listener() -> int:
    """Return the process that listens on the engine's socket; 0 if that is not to be seen."""
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

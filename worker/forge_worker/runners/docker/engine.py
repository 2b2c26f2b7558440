"""The connection to the Docker engine: a client for each thread, and what its errors mean."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import docker
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

"""One run of the container engine, told from the next: an engine that stops ends its containers.

Whatever code a container then leaves with is the engine's doing, and no result of its job. It
counts only if the engine did not stop meanwhile, or leaves containers alone (live-restore).
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from forge_worker.runners.docker.engine import DEFAULT_HOST, PING_TIMEOUT_S

if TYPE_CHECKING:
    from forge_worker.runners.docker.engine import Engine

PROGRAM = "dockerd"
# Who listens for an engine that is started with its first caller.
MANAGER = 1
CREDENTIALS = struct.Struct("iII")


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

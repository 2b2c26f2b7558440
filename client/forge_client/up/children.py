"""The children of a `forge up`: its workers as a group, and its server, which is on loopback."""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from forge_schema.model.quantities import duration_text

from forge_client.errors import ClientError
from forge_client.up.child_process import ChildProcess, StopSignals
from forge_client.up.detached import HOST, is_taken, port_taken, refuse_taken

if TYPE_CHECKING:
    from forge_schema.model.worker import WorkerInfo

    from forge_client.backend import Backend

Say = Callable[[str], None]
WORKER = "forge_worker.main"

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
SERVER = "forge_functions.server"
PORT = 8900
# Of connections that wait for it.
BACKLOG = 2048
SERVER_STOP_S = 10.0


class Workers:
    """Reads the workers' status from the queue, to which they report it."""

    def __init__(self, processes: Sequence[ChildProcess], backend: "Backend", say: Say) -> None:
        self._processes = processes
        self._backend = backend
        self._say = say
        self._left: set[str] = set()
        self._next_look = 0.0

    def start(self, asked: StopSignals) -> str:
        """Start them and wait until all are connected, one has died, or time is up.

        Return what became of those that did not come, "" if all have.
        """
        began, left = time.monotonic(), [*self._processes]
        for process in left:
            process.start()
        while time.monotonic() - began < READY_S and not asked.wait(LOOK_S):
            names = {row.name for row in self._rows() if row.silent_s < time.monotonic() - began}
            left = [process for process in self._processes if process.name not in names]
            if all(not process.alive for process in left):
                break
        if asked.urgency:
            return ""
        return "; ".join(_standing(process, process.status) for process in left)

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
                    f"{_standing(process, status)}; restarting it in"
                    f" {duration_text(process.rest_s)}; see {process.log}"
                )
        if self._left and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + RETURN_LOOK_S
            self._left -= {row.name for row in self._rows() if row.command is None}

    def stop(self, asked: StopSignals, meanwhile: Callable[[], None]) -> None:
        """Stop them: drain, stop or kill, depending on the urgency so far."""
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


def _standing(process: ChildProcess, status: int | None) -> str:
    """Return that a worker exited with a status, or is not there yet, with its last words."""
    did = "has not connected yet" if status is None else f"exited with status {status}"
    words = process.last_words
    return f"worker {process.name} {did}{f': {words}' if words else ''}"


class UpServer:
    """Keeps its port and its secret in the folder, so that signed URLs stay valid.

    It gets a socket that listens already: who connects before it has loaded waits for it.

    Args:
        folder: the folder of the `forge up`.
        port: its port; None means the previous one, or 8900, or else any free one.
        say: called with a line when it dies.

    Raises:
        ClientError: the port is in use.
    """

    def __init__(self, folder: Path, *, port: int | None, say: Say) -> None:
        self._folder = folder / "server"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        refuse_taken(port)
        self._port = port or 0
        self._say = say
        self._log = folder / "logs" / "server.log"
        self._child: ChildProcess | None = None
        self._listening: socket.socket | None = None
        # For the commands of whoever can read where it is announced, and can reach the database.
        self.token = secrets.token_hex(32)

    @property
    def url(self) -> str:
        """Its URL on this machine, available once there is a socket."""
        return f"http://{HOST}:{self._port}"

    def listen(self) -> None:
        """Open its socket; `ClientError` if the port is in use."""
        self._listening = self._socket()
        self._port = self._listening.getsockname()[1]
        _keep(self._folder / "port", str(self._port))

    def load(self, database_url: str, store_url: str) -> None:
        """Have it load now, with the socket, so that it starts quickly once there is a database."""
        self._log.parent.mkdir(exist_ok=True)
        env = {
            "FORGE_DATABASE_URL": database_url,
            "FORGE_STORE_URL": store_url,
            "FORGE_SERVER_SECRET": self._secret(),
            "FORGE_UP_TOKEN": self.token,
            "FORGE_HOST": HOST,
            "FORGE_PORT": str(self._port),
        }
        self._child = ChildProcess("server", SERVER, self._folder, self._log, env)
        if self._listening:
            # Only this process has it then; after a crash, another opens one of its own.
            with self._listening as listening:
                env["FORGE_SOCKET_FD"] = str(listening.fileno())
                self._child.load()

    def start(self) -> None:
        """Start the loaded server without waiting for it."""
        if self._child is None:
            return
        self._child.start()
        self._child.env.pop("FORGE_SOCKET_FD", None)

    def look_after(self) -> None:
        """Restart it if it has died."""
        status = self._child.look_after() if self._child else None
        if self._child and status is not None:
            self._say(
                f"the server exited with status {status}; restarting it in"
                f" {duration_text(self._child.rest_s)}; see {self._log}"
            )

    def stop(self) -> None:
        """Stop it."""
        if self._child is None:
            return
        self._child.ask(signal.SIGTERM)
        if not self._child.wait(SERVER_STOP_S):
            self._child.ask(signal.SIGKILL)
            self._child.wait(SERVER_STOP_S)
        self._child.forget()

    def _socket(self) -> socket.socket:
        had = _kept(self._folder / "port")
        usual = (*([int(had)] if had.isdecimal() else []), PORT, 0)
        for port in (self._port,) if self._port else usual:
            with suppress(OSError):
                if not (port and is_taken(port)):
                    return socket.create_server((HOST, port), backlog=BACKLOG)
        raise port_taken(self._port)

    def _secret(self) -> str:
        kept = self._folder / "secret"
        if not _kept(kept):
            _keep(kept, secrets.token_hex(32))
        return _kept(kept)


def _kept(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _keep(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{text}\n")

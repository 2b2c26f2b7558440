"""The server of a `forge up`: the HTTP functions on loopback, for workers and the dashboard."""

import os
import secrets
import signal
import socket
import time
from pathlib import Path

from forge_schema.model.quantities import duration_text

from forge_client.errors import ClientError
from forge_client.up.child_process import ChildProcess, StopSignals
from forge_client.up.workers import Say

MODULE = "forge_functions.server"
HOST = "127.0.0.1"
PORT = 8900
READY_S = 20.0
LOOK_S = 0.05
STOP_S = 10.0


class UpServer:
    """Keeps its port and its secret in the folder, so that signed URLs stay valid.

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
        if port and _taken(port):
            raise ClientError(
                f"something else already answers on port {port} of this machine",
                hint="use another --port, or omit it to get a free one",
                code="port_taken",
            )
        self._port = port or 0
        self._say = say
        self._log = folder / "logs" / "server.log"
        self._child: ChildProcess | None = None
        # For the commands of whoever can read where it is announced, and can reach the database.
        self.token = secrets.token_hex(32)

    @property
    def url(self) -> str:
        """Its URL on this machine, available once it has started."""
        return f"http://{HOST}:{self._port}"

    def load(self, database_url: str, store_url: str) -> None:
        """Have it load now, so that it starts quickly once there is a database."""
        self._log.parent.mkdir(exist_ok=True)
        env = {
            "FORGE_DATABASE_URL": database_url,
            "FORGE_STORE_URL": store_url,
            "FORGE_SERVER_SECRET": self._secret(),
            "FORGE_UP_TOKEN": self.token,
            "FORGE_HOST": HOST,
        }
        self._child = ChildProcess("server", MODULE, self._folder, self._log, env)
        self._child.load()

    def start(self) -> None:
        """Start the loaded server without waiting for it."""
        if self._child is None:
            return
        # Not earlier: a port that is free now may be in use by the time everything is loaded.
        self._port = self._port or self._usual_port()
        _keep(self._folder / "port", str(self._port))
        self._child.env["FORGE_PORT"] = str(self._port)
        self._child.start()

    def await_ready(self, asked: StopSignals) -> None:
        """Wait until it accepts connections, has died, or time is up."""
        deadline = time.monotonic() + READY_S
        while self._child and self._child.alive and time.monotonic() < deadline:
            if _taken(self._port) or asked.wait(LOOK_S):
                return

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
        if not self._child.wait(STOP_S):
            self._child.ask(signal.SIGKILL)
            self._child.wait(STOP_S)
        self._child.forget()

    def _usual_port(self) -> int:
        had = _kept(self._folder / "port")
        wished = [int(had)] if had.isdecimal() else []
        return next((port for port in (*wished, PORT) if not _taken(port)), _free())

    def _secret(self) -> str:
        kept = self._folder / "secret"
        if not _kept(kept):
            _keep(kept, secrets.token_hex(32))
        return _kept(kept)


def _taken(port: int) -> bool:
    with socket.socket() as knocking:
        knocking.settimeout(1)
        return knocking.connect_ex((HOST, port)) == 0


def _free() -> int:
    with socket.socket() as place:
        place.bind((HOST, 0))
        port: int = place.getsockname()[1]
        return port


def _kept(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _keep(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{text}\n")

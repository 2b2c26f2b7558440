"""The shells of a worker: it connects to the caller's server, and runs the command wanted there.

Nothing listens on the worker. A call names a job; the worker shows the lease of it that it holds.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import structlog
from forge_schema.http_client import tls_context
from forge_schema.model.errors import ForgeError
from forge_schema.proxies import ProxyUnusable
from forge_schema.shell import (
    LEASE,
    ORDER_S,
    PIECE_BYTES,
    STDIN,
    WORKER_PATH,
    ShellNews,
    ShellWanted,
    connect,
)
from pydantic import ValidationError

from forge_worker import worker_folder
from forge_worker.attempt import LiveAttempt
from forge_worker.clock import seconds
from forge_worker.runners.entry import Entry, NotEntered, find
from forge_worker.runners.runner import FOLDER_LABEL
from forge_worker.settings.settings import WorkerSettings
from forge_worker.shells.command import ShellCommand

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from forge_worker.shells.ssh import Ssh

MOST = 16
CONNECT_S = 15.0
PAUSE_S = 0.5
# How soon a command ends whose job has ended.
LOOK_S = 1.0
# How long the caller may take for the rest of the output.
REST_S = 60.0

log = structlog.get_logger(__name__)


class ShellService:
    """Serves callers, each in threads of its own; `attempts` returns what runs here."""

    def __init__(self, settings: WorkerSettings, attempts: Callable[[], list[LiveAttempt]]) -> None:
        self._settings = settings
        self._attempts = attempts
        self._lock = Lock()
        self._open: set[str] = set()
        self._closing = Event()

    def open(self, shell_id: str) -> None:
        """Follow a call, unless it was followed before."""
        job = shell_id.partition("-")[0]
        attempt = next((a for a in self._attempts() if str(a.fence.job_id) == job), None)
        with self._lock:
            if attempt is None or shell_id in self._open or len(self._open) >= MOST:
                return
            self._open.add(shell_id)
        args = (attempt, shell_id)
        Thread(target=self._serve, args=args, name=f"shell {shell_id}", daemon=True).start()

    def close(self) -> None:
        """End all commands."""
        self._closing.set()

    def _serve(self, attempt: LiveAttempt, shell_id: str) -> None:
        # Only for shells; it takes a while to import.
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        about = {"job": attempt.fence.job_id, "shell": shell_id[-8:]}
        try:
            with self._connected(attempt, shell_id) as socket:
                wanted = ShellWanted.model_validate_json(socket.recv(ORDER_S))
                log.info("shell_opened", **about, program=wanted.program)
                news = self._ran(socket, attempt, shell_id, wanted)
                # A caller of ssh is usually gone before its server has ended.
                with suppress(ConnectionClosed):
                    socket.send(news.text)
                log.info("shell_closed", **about, exit_code=news.exit_code, error=news.message)
        except (ForgeError, OSError, ValidationError) as error:
            log.warning("shell_not_opened", **about, why=str(error))
        except Exception as error:  # noqa: BLE001 - the library has many, and all are of the network
            log.warning("shell_lost", **about, why=str(error) or type(error).__name__)
        finally:
            with self._lock:
                self._open.discard(shell_id)

    def _connected(self, attempt: LiveAttempt, shell_id: str) -> "ClientConnection":
        """Find the server at which the caller waits, among several."""
        # Only for shells; it takes a while to import.
        from websockets.exceptions import InvalidHandshake  # noqa: PLC0415

        fence, settings = attempt.fence, self._settings
        headers = {LEASE: f"{fence.job_id}:{fence.token}:{fence.nonce}"}
        urls = settings.url or settings.exec_url
        if not urls:
            raise NotEntered("the callers' server is not known: give --exec-url")
        tls = tls_context(settings.tls_ca, verify=not settings.insecure_skip_verify)
        until_s = seconds() + CONNECT_S
        while True:
            for url in urls:
                try:
                    return connect(url, f"{WORKER_PATH}/{shell_id}", headers, tls)
                except (OSError, InvalidHandshake, ProxyUnusable) as error:
                    why = f"{url}: {error}"
            if seconds() > until_s or self._closing.wait(PAUSE_S):
                raise NotEntered(f"the caller's server is not reached: {why}")

    def _ran(
        self, socket: "ClientConnection", attempt: LiveAttempt, shell_id: str, wanted: ShellWanted
    ) -> ShellNews:
        try:
            command = self._started(socket, attempt, shell_id, wanted)
        except (ForgeError, OSError) as error:
            hint = error.hint if isinstance(error, ForgeError) else ""
            return ShellNews(code="not_run", message=str(error), hint=hint)
        try:
            return ShellNews(exit_code=self._attended(socket, attempt, command))
        finally:
            command.kill()
            command.close()

    def _started(
        self, socket: "ClientConnection", attempt: LiveAttempt, shell_id: str, wanted: ShellWanted
    ) -> "ShellCommand | Ssh":
        job = self._entry(attempt)
        if wanted.command:
            return ShellCommand(job, wanted.command, shell_id, wanted.terminal)
        # Only for these shells; its library takes a while to import.
        from forge_worker.shells.ssh import Ssh  # noqa: PLC0415

        ssh = Ssh(job, shell_id, wanted.ports)
        socket.send(ShellNews(host_key=ssh.host_key).text)
        return ssh

    def _entry(self, attempt: LiveAttempt) -> Entry:
        if not self._settings.allow_exec:
            raise NotEntered(
                "this worker allows no commands inside its jobs",
                hint="its operator has set --no-allow-exec",
            )
        entry = find(
            {
                "forge.job": str(attempt.fence.job_id),
                "forge.token": str(attempt.fence.token),
                FOLDER_LABEL: str(worker_folder.own_id(self._settings.worker_dir)),
            }
        )
        if entry is None:
            raise NotEntered(
                "the job's process or container is not found on its worker's machine",
                hint="it may be starting or ending; `forge doctor` there checks its engine",
            )
        return entry

    def _attended(
        self, socket: "ClientConnection", attempt: LiveAttempt, command: "ShellCommand | Ssh"
    ) -> int:
        """Pass bytes until the command has ended; kill it if the caller or the job has gone."""
        gone = Event()
        Thread(target=_listen, args=(socket, command, gone), daemon=True).start()
        readers = [
            Thread(target=_read, args=(socket, stream, descriptor), daemon=True)
            for stream, descriptor in command.outputs.items()
        ]
        for reader in readers:
            reader.start()
        while (code := command.wait(LOOK_S)) is None:
            over = attempt.over or attempt.lost or attempt not in self._attempts()
            if gone.is_set() or self._closing.is_set() or over:
                command.kill()
        # What it has left behind must not hold the caller up.
        command.kill()
        for reader in readers:
            reader.join(REST_S)
        return code


def _listen(socket: "ClientConnection", command: "ShellCommand | Ssh", gone: Event) -> None:
    """Pass what the caller sends to a command, until the caller leaves."""
    with suppress(Exception):
        for message in socket:
            if isinstance(message, str):
                if (size := ShellNews.model_validate_json(message).terminal) is not None:
                    command.resize(size)
            elif message.startswith(STDIN):
                command.type(message[1:])
    gone.set()


def _read(socket: "ClientConnection", stream: bytes, descriptor: int) -> None:
    """Pass what a command writes to the caller, until the end."""
    with suppress(Exception):
        while data := os.read(descriptor, PIECE_BYTES):
            socket.send(stream + data)

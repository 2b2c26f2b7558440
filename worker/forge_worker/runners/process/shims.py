"""The agent's end of the lines to its jobs' shims, and the server that starts these."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from forge_worker.runners.process.fork_server import REQUEST
from forge_worker.runners.process.shim import BLANK

if TYPE_CHECKING:
    from forge_worker.runners.runner import RunSpec

PACKAGES = str(Path(__file__).parents[3])
MARK = "forge-shim"
BOOT = (
    f"import sys; sys.path.insert(0, {PACKAGES!r}); "
    "from forge_worker.runners.process.fork_server import main; main()"
)
MILLISECONDS = 1000
PIECE_BYTES = 1 << 16
START_PATIENCE_S = 60.0
LATER_S = 0.5
END_S = 5.0

Server = tuple[subprocess.Popen[bytes], socket.socket]
"""The fork server, and the agent's end of the socket between them."""


class ShimLine:
    """The line to one shim. Only orders may come from several threads at once."""

    def __init__(self, ours: socket.socket) -> None:
        ours.settimeout(START_PATIENCE_S)
        self._socket = ours
        self._received = b""
        # What the shim says first; nothing if it is gone, or does not answer in time.
        self.greeting = self.read()
        self.shim = int(self.greeting.get("shim", 0))

    def send(self, data: bytes) -> None:
        """Send bytes; `OSError` if the shim is gone."""
        self._socket.sendall(data)

    def order(self, words: str) -> None:
        """Send an order; nothing happens if the shim is gone, and the job with it."""
        with contextlib.suppress(OSError):
            self.send(f"{words}\n".encode())

    def read(self) -> dict[str, Any]:
        """Wait for the next thing that the shim says; nothing if it is gone."""
        with contextlib.suppress(OSError):
            while b"\n" not in self._received:
                if not (more := self._socket.recv(PIECE_BYTES)):
                    return {}
                self._received += more
            line, _, self._received = self._received.partition(b"\n")
            message: dict[str, Any] = json.loads(line)
            return message
        return {}

    def wait(self, seconds: float, wake: int | None = None) -> bool:
        """Wait until the shim says something or is gone, or `wake` can be read; False if not."""
        if self._received:
            # It came with what was said before.
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        ready = poll.poll(max(0.0, seconds) * MILLISECONDS)
        return self._socket.fileno() in {descriptor for descriptor, _ in ready}

    def kill(self) -> None:
        """Kill the shim, and its job with it."""
        with contextlib.suppress(psutil.Error):
            # While the line is open, its process id is not another's.
            psutil.Process(self.shim).kill()

    def close(self) -> None:
        """Close the line."""
        self._socket.close()


class Shims:
    """Starts shims, as copies of a server that the first job starts. Thread-safe.

    After the first, there is one that waits for the next job. It has nothing of another job.
    """

    def __init__(self) -> None:
        self._servers: list[Server] = []
        self._spare: list[ShimLine] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _discard, self._servers, self._spare)

    def take(self) -> ShimLine:
        """Return a shim that waits for its order; `OSError` if it cannot be started."""
        with contextlib.suppress(IndexError):
            spare = self._spare.pop()
            if not spare.wait(0):
                return spare
            # It has died.
            spare.close()
        return self._start()

    def prepare(self) -> None:
        """Have a shim for the next job soon: the one that starts now needs the CPUs first."""
        if not self._spare:
            later = threading.Timer(LATER_S, self._prepare)
            later.daemon = True
            with contextlib.suppress(RuntimeError):
                later.start()

    def _prepare(self) -> None:
        # Without one, the next job waits for its own.
        with contextlib.suppress(OSError):
            if not self._spare:
                self._spare.append(self._start())

    def _start(self) -> ShimLine:
        for _ in range(2):
            ours, theirs = socket.socketpair()
            with theirs, self._lock:
                self._request(theirs)
            line = ShimLine(ours)
            if line.shim:
                return line
            # The server has died. A shim that does not answer has no job yet.
            line.close()
        raise OSError("its supervising program does not start")

    def _request(self, theirs: socket.socket) -> None:
        if self._servers:
            try:
                socket.send_fds(self._servers[0][1], [REQUEST], [theirs.fileno()])
            except OSError:
                _discard(self._servers, [])
            else:
                return
        self._servers.append(_started())
        socket.send_fds(self._servers[0][1], [REQUEST], [theirs.fileno()])


def title(spec: RunSpec) -> list[str]:
    """Return the end of a shim's command line, by which a later agent finds it.

    Raises:
        OSError: it is too long.
    """
    words = [spec.name, *(f"{name}={value}" for name, value in spec.labels.items())]
    if len("\0".join(words).encode()) >= len(BLANK):
        raise OSError("its labels are too long")
    return words


def base_environment() -> dict[str, str]:
    """Return the few variables of the agent that a job inherits; others may be secrets."""
    # If no `python` is installed, a job's `python train.py` uses the agent's.
    path = f"{os.environ.get('PATH', os.defpath)}:{Path(sys.executable).parent}"
    env = {"PATH": path, "HOME": str(Path.home()), "LANG": os.environ.get("LANG", "C.UTF-8")}
    return env | {name: os.environ[name] for name in ("TZ",) if name in os.environ}


def _started() -> Server:
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-I", "-S", "-c", BOOT, str(theirs.fileno()), MARK, BLANK]
    try:
        with theirs:
            server = subprocess.Popen(  # noqa: S603  our own program, and no shell
                program,
                env=base_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return server, ours


def _discard(servers: list[Server], spare: list[ShimLine]) -> None:
    """End the servers and the shims without a job: they leave when their socket closes."""
    while spare:
        spare.pop().close()
    while servers:
        server, ours = servers.pop()
        ours.close()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

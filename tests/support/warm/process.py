"""Our programs as separate processes, without the second that each would take to import itself.

They are forked from a process that has imported the program and done nothing else. Only what the
kernel keeps from an exec is not their own: the command line and the initial environment. A test
that looks for those in /proc has to start the program with `subprocess`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

from support.locked import locked

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT = Path(__file__).with_name("zygote.py")
# Python and the dynamic loader read these as a process starts.
READ_ONCE = ("PYTHONPATH", "LD_LIBRARY_PATH")
# Commands that load so much that others would be slower for it.
HEAVY = {("forge_client.main", "up")}


def started(
    module: str, argv: list[str], env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start one of our programs, with its output in `log`."""
    # What is loaded before the program reads its own variables only once.
    if env.get("LD_PRELOAD") != os.environ.get("LD_PRELOAD"):
        cold = [sys.executable, "-m", module, *argv]
        return subprocess.Popen(cold, env=env, stdout=log, stderr=log)
    return Warm(module, [module, *argv], env=env, stdout=log, stderr=log)


class Nursery:
    """The process from which all processes of one program, or of a heavy command, are forked."""

    def __init__(self, program: tuple[str, ...], fixed: tuple[tuple[str, str], ...]) -> None:
        self._lock = Lock()
        self._program = program
        self._fixed = dict(fixed)
        said = repr((program, fixed)).encode()
        self._door = _folder() / f"warm-{hashlib.sha256(said).hexdigest()[:8]}"
        self._control = self._reached()
        atexit.register(self._close)

    def fork(self, request: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
        """Return a new process, and the socket that will report its status."""
        told, theirs = socket.socketpair()
        with theirs, self._lock:
            message, files = json.dumps(request).encode(), [*streams, theirs.fileno()]
            try:
                socket.send_fds(self._control, [message], files)
            except BrokenPipeError:
                # If a test ends it by mistake, that is reported, and later tests are not affected.
                sys.stderr.write(f"what {self._program[0]} is forked from has ended\n")
                self._close()
                self._control = self._reached()
                socket.send_fds(self._control, [message], files)
        pid = told.recv(4)
        assert pid, f"{request['argv']} was not started"
        return int.from_bytes(pid), told

    def _reached(self) -> socket.socket:
        """Return a connection to the process, which the first test process starts."""
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with locked(self._door.with_suffix(".lock")):
            try:
                control.connect(str(self._door))
            except (FileNotFoundError, ConnectionRefusedError):
                self._begin()
                control.connect(str(self._door))
        return control

    def _begin(self) -> None:
        self._door.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(self._door))
            door.listen()
            # Without the script's folder on the path, which the program would not have.
            words = [sys.executable, "-P", str(SCRIPT), str(door.fileno()), *self._program]
            # It inherits nothing else: a pipe of a test that it held would never end.
            started = subprocess.Popen(
                words,
                env={**os.environ, **self._fixed},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[door.fileno()],
            )
            # Nobody waits for its end: it comes with that of the last test process.
            started.returncode = 0

    def _close(self) -> None:
        # Processes that it started continue.
        self._control.close()


_shared: Path | None = None


def share(folder: Path) -> None:
    """Fork programs from the same processes as all others that share this folder."""
    global _shared  # noqa: PLW0603  one for each process
    _shared = folder


@cache
def _folder() -> Path:
    if _shared is not None:
        return _shared
    own = tempfile.mkdtemp(prefix="forge-warm-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


@cache
def _nursery(program: tuple[str, ...], *fixed: tuple[str, str]) -> Nursery:
    return Nursery(program, fixed)


class Warm(subprocess.Popen[Any]):
    """A forked process of the program `module`, with the interface of `subprocess`."""

    def __init__(self, module: str, argv: list[str], **options: Any) -> None:  # noqa: ANN401  Popen's
        self._module = module
        super().__init__(argv, **options)

    def _execute_child(self, *given: Any) -> None:  # noqa: ANN401  Popen's own, by position
        argv, cwd, env = given[0], given[5], dict(given[6] or os.environ)
        pipes = given[10:16]
        streams = (pipes[0], pipes[3], pipes[5])
        fixed = [(name, env[name]) for name in READ_ONCE if env.get(name)]
        command = (self._module, *argv[1:2])
        program = command if command in HEAVY else (self._module,)
        self.pid, self._told = _nursery(program, *fixed).fork(
            {"argv": argv, "cwd": str(cwd or Path.cwd()), "env": env},
            [own if there == -1 else there for own, there in enumerate(streams)],
        )
        weakref.finalize(self, self._told.close)
        popen: Any = self
        popen._child_created = True
        popen._close_pipe_fds(*pipes)

    # It is not a child of this process: whoever forked it tells its status.
    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        asked = select.poll()
        asked.register(self._told, select.POLLIN)
        if not asked.poll(None if timeout is None else 1000 * max(timeout, 0)):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        # It stays there for other threads.
        status = self._told.recv(4, socket.MSG_PEEK)
        assert status, f"it is not known how {self.args!r} ended"
        self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status))
        return self.returncode

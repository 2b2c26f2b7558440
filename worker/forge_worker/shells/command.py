"""One command inside a job, with a terminal or with three pipes, as a child of the agent."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress

import psutil
from forge_schema.shell import STDERR, STDOUT, Terminal

from forge_worker.runners.entry import SESSION, Entry, NotEntered

# It dies with the agent. A terminal belongs to the session that it starts.
BOOT = """
import ctypes, fcntl, os, sys, termios
# `execvp` imports it, and the job's user may not be able to read it.
import warnings
user, command = sys.argv[1], sys.argv[2:]
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if user:
    uid, gid = map(int, user.split(","))
    if os.isatty(0):
        os.fchown(0, uid, -1)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
try:
    os.execvp(command[0], command)
except OSError as error:
    sys.stderr.write(f"{command[0]}: {error.strerror}\\n")
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


class ShellCommand:
    """A command inside a job; `outputs` are the descriptors to read, by the name of their stream.

    Args:
        job: where it runs.
        words: the command.
        mark: is on it and on all that it starts.
        terminal: of its caller; it has three pipes without.

    Raises:
        NotEntered: only the job's own user may run it.
        OSError: it cannot be started.
    """

    def __init__(
        self, job: Entry, words: Sequence[str], mark: str, terminal: Terminal | None
    ) -> None:
        given = {SESSION: mark, **({"TERM": terminal.term} if terminal else {})}
        program = job.program(words, given, tty=terminal is not None)
        another = program.uid not in {None, os.geteuid()}
        if another and os.geteuid() != 0:
            raise NotEntered("the job runs as another user than its worker")
        user = f"{program.uid},{program.gid}" if another else ""
        self._mark = mark
        self._tty = terminal is not None
        mine, theirs = pty.openpty() if terminal else (-1, subprocess.PIPE)
        if terminal:
            _resize(mine, terminal)
        try:
            self._child = subprocess.Popen(  # noqa: S603 - what the job's owner asked to run
                [sys.executable, "-I", "-S", "-c", BOOT, user, *program.command],
                env=program.env,
                cwd=program.folder,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException:
            if terminal:
                os.close(mine)
            raise
        finally:
            if terminal:
                os.close(theirs)
        self.outputs = {STDOUT: mine} if terminal else self._pipes()
        self._input = mine if terminal else self._stdin()

    def _pipes(self) -> dict[bytes, int]:
        out, err = self._child.stdout, self._child.stderr
        assert out is not None  # noqa: S101 - all three are pipes
        assert err is not None  # noqa: S101 - as above
        return {STDOUT: out.fileno(), STDERR: err.fileno()}

    def _stdin(self) -> int:
        assert self._child.stdin is not None  # noqa: S101 - as above
        return self._child.stdin.fileno()

    def type(self, data: bytes) -> None:
        """Write to its standard input; no data ends that, unless it is a terminal."""
        # Who reads no more has ended, or closed its input.
        with suppress(OSError):
            if data:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._input, view) :]
            elif not self._tty and self._child.stdin is not None:
                self._child.stdin.close()

    def resize(self, terminal: Terminal) -> None:
        """Change the size of its terminal."""
        if self._tty:
            _resize(self._input, terminal)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit code, or None if it still runs after `timeout_s` seconds."""
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Kill it and all that it started, as far as this user may."""
        kill_marked(self._mark)
        self._child.kill()
        self._child.wait()

    def close(self) -> None:
        """Close the descriptors, once nobody reads them."""
        if self._tty:
            os.close(self._input)
            return
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def kill_marked(mark: str) -> None:
    """Kill all that bears a mark, or that of a session below it, as far as this user may."""
    for process in psutil.process_iter(["environ"]):
        session = (process.info["environ"] or {}).get(SESSION, "")
        if session == mark or session.startswith(f"{mark}."):
            with suppress(psutil.Error):
                process.kill()


def _resize(descriptor: int, terminal: Terminal) -> None:
    size = struct.pack("HHHH", terminal.rows, terminal.columns, 0, 0)
    with suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)

"""`forge exec` in a terminal, and the job that is entered."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A job that runs until somebody who entered it, or who has its folder, makes the file `go`.
WAITS = """
import os, threading
print("ready", os.getuid(), os.getcwd(), flush=True)
while not os.path.exists("go"):
    threading.Event().wait(0.05)
"""
SIZE = b"until stty size | grep -q '%d %d'; do sleep 0.1; done; echo %s-$?$TERM\n"


def enter_in_a_terminal(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Use a job's shell as a person does: change the window, stop a program, leave.

    The command's `TERM` is vt100, which is seen inside.
    """
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    shown = bytearray()

    def shows(text: bytes) -> bool:
        with suppress(BlockingIOError):
            shown.extend(os.read(ours, 65536))
        return text in shown

    def stopped() -> bool:
        """Press Ctrl-C again: a shell that has only just begun a program may get it instead."""
        if not (said := shows(b"fourth-130\r\n")):
            os.write(ours, b"\x03echo fourth-$?\n")
        return said

    _resize(ours, 33, 99)
    words = ["setsid", "--ctty", "--wait", *command]
    env = {**env, "TERM": "vt100"}
    with subprocess.Popen(words, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as shell:
        try:
            os.write(ours, b"tty; " + SIZE % (33, 99, b"first"))
            eventually(lambda: shows(b"first-0vt100\r\n"))
            assert b"/dev/pts/" in shown
            _resize(ours, 44, 111)
            os.write(ours, SIZE % (44, 111, b"second"))
            eventually(lambda: shows(b"second-0vt100\r\n"))
            # Ctrl-C ends the program and neither the shell nor the command here.
            os.write(ours, b"echo wait''ing; sleep 86400; echo third-$?\n")
            eventually(lambda: shows(b"waiting\r\n"))
            eventually(stopped, every=1)
            os.write(ours, b"exit 9\n")
            eventually(lambda: shows(b"exit 9") and shell.poll() is not None)
        finally:
            shell.kill()
    os.close(theirs)
    os.close(ours)
    assert shell.returncode == 9


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

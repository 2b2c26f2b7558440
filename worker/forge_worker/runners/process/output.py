"""Copy a job's output from a pipe to its log. Standard library only: the shim uses it too.

A pipe, and not the log file itself, is what the job gets as stdout and stderr: opening
/dev/stderr again, as `echo … >/dev/stderr` does, would cut a plain file back to nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 1 << 18
BLOCKS_PER_TURN = 16  # so that a job that never stops printing cannot hold up its own stop
PIPE_SIZE = 1 << 20


class Output:
    """The way from the descriptor `source`, which it makes non-blocking, to the end of `log`."""

    def __init__(self, source: int, log: Path) -> None:
        os.set_blocking(source, False)
        with contextlib.suppress(OSError):  # the user's share of pipe memory may be used up
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self.source = source
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.error = ""
        self.ended = False

    def turn(self) -> bool:
        """Copy what is waiting, a few MiB at most; return False when nothing is left."""
        return all(self._block() for _ in range(BLOCKS_PER_TURN))

    def drain(self) -> None:
        """Copy everything that is waiting."""
        while self.turn():
            pass

    def close(self) -> None:
        """Close the log; the source stays its owner's business."""
        os.close(self.log)

    def _block(self) -> bool:
        try:
            data = os.read(self.source, BLOCK)
        except BlockingIOError:
            return False
        self.append(data)
        self.ended = not data
        return bool(data)

    def append(self, data: bytes) -> None:
        """Write `data`; a log that cannot be written must not hold up the job."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.log, left) :]
        except OSError as error:
            self.error = f"{len(left)} bytes or more of output were lost: {error.strerror}"

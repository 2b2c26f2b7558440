"""Copy a job's output from a pipe to its log. Standard library only: the shim uses it too.

A pipe, and not the log file itself, is what the job gets as stdout and stderr: opening
/dev/stderr again, as `echo … >/dev/stderr` does, would cut a plain file back to nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from forge_worker.files.small_files import held

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 1 << 18
BLOCKS_PER_TURN = 16  # so that a job that never stops printing cannot hold up its own stop
PIPE_SIZE = 1 << 20


class Output:
    """The way from the descriptor `source`, which it makes non-blocking, to the end of a file."""

    def __init__(self, source: int, log: Path) -> None:
        os.set_blocking(source, False)
        with contextlib.suppress(OSError):  # the user's share of pipe memory may be used up
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self.source = source
        self.log = os.open(log, os.O_WRONLY | os.O_CLOEXEC)
        self.error = ""
        self.ended = False
        self._lost = 0

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

    def append(self, data: bytes) -> None:
        """Write `data`; a log that cannot be written must not hold up the job."""
        with self._at_end():
            self._write(data)

    def _block(self) -> bool:
        try:
            with self._at_end():
                moved = self._move()
        except BlockingIOError:
            return False
        self.ended = not moved
        return not self.ended

    @contextlib.contextmanager
    def _at_end(self) -> Iterator[None]:
        # Found under the lock: a file that is opened to append cannot be spliced to.
        with held(self.log):
            os.lseek(self.log, 0, os.SEEK_END)
            yield

    def _move(self) -> int:
        """Move a block in one call, so that a kill leaves every byte in the pipe or in the log."""
        try:
            return os.splice(self.source, self.log, BLOCK, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            raise
        except OSError:  # the disk is full, or its file system cannot splice
            data = os.read(self.source, BLOCK)
            self._write(data)
            return len(data)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.log, left) :]
        except OSError as error:
            # What an earlier agent lost of a container's output is not counted.
            self._lost += len(left)
            self.error = f"at least {self._lost} bytes of output were lost: {error.strerror}"

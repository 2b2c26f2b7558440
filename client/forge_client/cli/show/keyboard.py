"""The keyboard while a command shows something that goes on: single keys, without Enter."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from select import select


class Keyboard:
    """Waits for keys; where none can be read, just waits."""

    def __init__(self, *, readable: bool) -> None:
        self._readable = readable

    def pressed(self, wanted: str, seconds: float) -> bool:
        """Wait so long at most for one of some keys, and tell whether it was pressed."""
        until = time.monotonic() + seconds
        while self._readable and (left := until - time.monotonic()) > 0:
            ready, _, _ = select([sys.stdin], [], [], left)
            key = os.read(sys.stdin.fileno(), 1) if ready else b" "
            if key and key in wanted.encode():
                return True
            # A terminal that went away is at its end for ever.
            self._readable = bool(key)
        time.sleep(max(0.0, until - time.monotonic()))
        return False


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read single keys inside the block; after it the terminal is as it was before."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield Keyboard(readable=False)
        return
    import termios  # noqa: PLC0415 - there is none on Windows
    import tty  # noqa: PLC0415 - as above

    before = termios.tcgetattr(sys.stdin)
    try:
        # Ctrl-C stays a signal.
        tty.setcbreak(sys.stdin)
        yield Keyboard(readable=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

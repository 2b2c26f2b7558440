"""Single keys from the terminal."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from select import select


class Keyboard:
    """Waits for keys; if keys cannot be read, it just waits."""

    def __init__(self, *, readable: bool) -> None:
        self._readable = readable

    def pressed(self, wanted: str, seconds: float) -> bool:
        """Wait at most `seconds` for one of the wanted keys; return whether it was pressed."""
        until = time.monotonic() + seconds
        while self._readable and (left := until - time.monotonic()) > 0:
            ready, _, _ = select([sys.stdin], [], [], left)
            key = os.read(sys.stdin.fileno(), 1) if ready else b" "
            if key and key in wanted.encode():
                return True
            # A terminal that has gone away stays at end of file.
            self._readable = bool(key)
        time.sleep(max(0.0, until - time.monotonic()))
        return False


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read single keys inside the block, and restore the terminal afterwards."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield Keyboard(readable=False)
        return
    import termios  # noqa: PLC0415 - there is none on Windows
    import tty  # noqa: PLC0415 - as above

    before = termios.tcgetattr(sys.stdin)
    try:
        # Ctrl-C still sends a signal.
        tty.setcbreak(sys.stdin)
        yield Keyboard(readable=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

"""What only rich can do: screens that are drawn again, and tables that must be squeezed."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from select import select
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forge_client.errors import Unreachable

T = TypeVar("T")
Cell = tuple[str, str]


def console() -> Console:
    """Return a console on stdout; if it is not a terminal, nothing is cut or coloured."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, width=width)


def grid(rows: Sequence[Sequence[Cell]], gap: int, note: str = "") -> Table:
    """Return rows of cells as a table that wraps what does not fit, with a note below it."""
    made = Table.grid(*(str(n) for n in range(len(rows[0]) if rows else 0)), padding=(0, gap))
    made.caption = note or None
    for row in rows:
        # What has no spaces, such as an id, is broken and not cut.
        made.add_row(*(Text(text, style=style, overflow="fold") for text, style in row))
    return made


def watch(
    look: Callable[[], T], view: Callable[[T, int, str], RenderableType], every_s: float
) -> None:
    """Show what `look` returns. While the queue does not answer, the last view stays."""
    seen, trouble = look(), ""
    terminal = console()
    with (
        suppress(KeyboardInterrupt),
        keyboard() as keys,
        Live(console=terminal, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(view(seen, terminal.size.height, trouble), refresh=True)
            if keys.pressed("qQ", every_s):
                return
            try:
                seen, trouble = look(), ""
            except Unreachable as error:
                trouble = error.message


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

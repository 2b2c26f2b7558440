"""Messages about the command's own progress, on stderr; and a terminal's colours and widths."""

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from forge_client.errors import ClientError

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def coloured(to: TextIO) -> bool:
    """Tell whether a stream may have colours: on a terminal, unless NO_COLOR or TERM forbids it."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in {"dumb", "unknown"}
    return to.isatty() and not plain


def styled(text: str, style: str, to: TextIO) -> str:
    """Return a text in a style such as `bold red`, if the stream may have colours."""
    codes = ";".join(CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and coloured(to) else text


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def say(text: str, style: str = "") -> None:
    """Print one line on stderr, after what stdout has so far: both may go to one place."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.write(f"{styled(text, style, sys.stderr)}\n")
    sys.stderr.flush()


def complain(error: ClientError) -> None:
    """Print an error and its hint."""
    say(f"{styled('error:', 'bold red', sys.stderr)} {error.message}")
    if error.hint:
        say(f"  hint: {error.hint}", "dim")


@contextmanager
def transfer(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for `total` bytes on a terminal; yield a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    # It takes a while to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    to = Console(stderr=True, highlight=False)
    with Progress(*columns, TimeRemainingColumn(), console=to, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)

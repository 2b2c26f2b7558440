"""Messages about the command's own progress: on stderr, so that stdout has only data."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forge_client.cli.show.terminal import styled
from forge_client.errors import ClientError


def say(text: str, style: str = "") -> None:
    """Print one line on stderr."""
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
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    to = Console(stderr=True, highlight=False)
    with Progress(*columns, TimeRemainingColumn(), console=to, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)

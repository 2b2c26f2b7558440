"""Messages about the command's own progress: on stderr, so that stdout has only data."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from forge_client.errors import ClientError


def console() -> Console:
    """Return a console on stderr; colour only on a terminal, and never if NO_COLOR is set."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Print one line."""
    console().print(text, style=style, markup=False)


def complain(error: ClientError) -> None:
    """Print an error and its hint."""
    to = console()
    to.print("error:", style="bold red", end=" ")
    to.print(error.message, markup=False)
    if error.hint:
        to.print(f"  hint: {error.hint}", style="dim", markup=False)


@contextmanager
def transfer(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for `total` bytes on a terminal; yield a function that advances it."""
    # Most commands transfer nothing, and it takes a while to import.
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    quiet = not sys.stderr.isatty()
    with Progress(
        *columns, TimeRemainingColumn(), console=console(), transient=True, disable=quiet
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)

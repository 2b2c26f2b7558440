"""What only rich can do: screens that are drawn again, and tables that must be squeezed."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forge_client.cli.show.output import Cell


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

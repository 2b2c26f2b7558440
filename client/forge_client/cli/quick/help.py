"""`forge --help`, drawn from the table of commands as typer and rich would draw it."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from forge_client.cli.quick.arguments import Declined, commands
from forge_client.cli.show.narration import styled, width

# In a narrower terminal, rich breaks the first columns, too.
NARROWEST = 72
FRAME, NAME = "dim", "bold cyan"


def write_help() -> None:
    """Write the help of the whole command.

    Raises:
        Declined: the terminal is very narrow.
    """
    columns = shutil.get_terminal_size().columns
    if columns < NARROWEST:
        raise Declined
    table = commands()
    lines = [*_text(table["before"], columns)]
    for box in table["boxes"]:
        lines += _box(box, columns)
    lines += _text(table["after"], columns)
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, ""]))


def _text(paragraphs: Iterable[str], columns: int) -> Iterator[str]:
    for paragraph in paragraphs:
        for line in _wrapped([paragraph], columns - 2):
            yield f" {line}".ljust(columns)


def _box(box: dict[str, Any], columns: int) -> Iterator[str]:
    title, at, inside = box["title"], box["at"], columns - 4
    yield _frame(f"╭─ {title} {'─' * (inside - width(title) - 1)}╮")
    for first, *rest in box["rows"]:
        for number, line in enumerate(_wrapped(rest, inside - at)):
            name = "" if number else first
            shown = styled(name, NAME, sys.stdout) + " " * (at - width(name))
            filled = " " * (inside - at - width(line))
            yield f"{_frame('│')} {shown}{line}{filled} {_frame('│')}"
    yield _frame(f"╰{'─' * (columns - 2)}╯")


def _frame(text: str) -> str:
    return styled(text, FRAME, sys.stdout)


def _wrapped(pieces: Sequence[str], columns: int) -> Iterator[str]:
    """Yield lines of at most so many columns; pieces that do not fit on one have one each."""
    if width(" ".join(pieces)) <= columns:
        pieces = [" ".join(pieces)]
    for piece in pieces:
        line = ""
        for word in piece.split(" "):
            if line and width(line) + 1 + width(word) > columns:
                yield line
                line = ""
            line = f"{line} {word}" if line else word
        yield line

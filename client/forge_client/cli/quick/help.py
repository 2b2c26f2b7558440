"""`forge --help`, drawn from the table of commands as typer and rich would draw it.

`forge` alone writes only what every day needs.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from forge_client.cli.quick.arguments import Declined, commands
from forge_client.cli.show.narration import styled, width

# In a narrower terminal, rich breaks the first columns, too.
NARROWEST = 72
FRAME, NAME = "dim", "bold cyan"
EVERY_DAY = "Every day"
SHORT = (
    "Usage: forge COMMAND [ARGS]...",
    "",
    "Submit training jobs to a Forge queue, watch them, fetch their results.",
    "",
)
MORE = (
    "",
    "forge up -d          starts a queue on this machine",
    "forge submit . -- python train.py",
    "forge help COMMAND   explains a command, forge help all lists the others",
)


def write_help() -> None:
    """Write the help of the whole command; `Declined` if the terminal is very narrow."""
    table = commands()
    _write(table["before"], table["boxes"], table["after"])
    sys.stdout.write("\n")


def write_short_help() -> None:
    """Write what fits on one screen.

    Raises:
        Declined: as for `write_help`.
    """
    _write(SHORT, [box for box in commands()["boxes"] if box["title"] == EVERY_DAY], MORE)


def _write(before: Iterable[str], boxes: Iterable[dict[str, Any]], after: Iterable[str]) -> None:
    columns = shutil.get_terminal_size().columns
    if columns < NARROWEST:
        raise Declined
    lines = [*_text(before, columns)]
    for box in boxes:
        lines += _box(box, columns)
    lines += _text(after, columns)
    sys.stdout.write("".join(f"{line}\n" for line in lines))


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

"""Colours and widths of text on a terminal; rich, which can do more, takes long to import."""

import os
import unicodedata
from typing import TextIO

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

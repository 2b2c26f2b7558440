"""The lines of a log: chosen by a pattern, marked with rank and time; chunk borders do not show."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote

from forge_client.cli.logs.reader import Piece
from forge_client.errors import ClientError

# What a job writes without ever ending the line must not fill the memory.
LINE_BYTES = 1 << 20


Line = tuple[bytes, datetime | None]
"""A line without its newline, and when its beginning was stored."""


class Lines:
    """Cuts the output of one rank of one attempt; what is longer than a MiB becomes several."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at: datetime | None = None

    def feed(self, piece: Piece) -> Iterator[Line]:
        """Yield the lines that a piece ends."""
        *ended, rest = piece.data.split(b"\n")
        for part in ended:
            yield from self._add(part, piece.at)
            yield self._end()
        yield from self._add(rest, piece.at)

    def rest(self) -> Iterator[Line]:
        """Yield the last line, where no newline ended it."""
        if self._rest:
            yield self._end()

    def _add(self, part: bytes, at: datetime | None) -> Iterator[Line]:
        while part or not self._rest:
            if not self._rest:
                self._at = at
            room = LINE_BYTES - len(self._rest)
            self._rest += part[:room]
            part = part[room:]
            if not part:
                return
            yield self._end()

    def _end(self) -> Line:
        line = bytes(self._rest), self._at
        self._rest.clear()
        return line


class Shaping:
    """Turns pieces into the lines that are wanted.

    Args:
        grep: what a line must have, as `pattern` makes it; None takes them all.
        ranks: whether each line says which rank wrote it.
        times: whether each line says when it was stored.
    """

    def __init__(
        self, grep: re.Pattern[str] | None = None, *, ranks: bool = False, times: bool = False
    ) -> None:
        self._grep = grep
        self._ranks = ranks
        self._times = times
        self._open: dict[int, tuple[int, Lines]] = {}

    def __bool__(self) -> bool:
        """Whether anything is to be done at all; else bytes are best left as they are."""
        return bool(self._grep or self._ranks or self._times)

    def shaped(self, piece: Piece) -> Iterator[bytes]:
        """Yield the wanted lines that a piece ends, each with a newline."""
        attempt, lines = self._open.get(piece.rank, (piece.attempt, Lines()))
        if attempt != piece.attempt:
            yield from self._wanted(lines.rest(), piece.rank)
            lines = Lines()
        self._open[piece.rank] = piece.attempt, lines
        yield from self._wanted(lines.feed(piece), piece.rank)

    def rest(self) -> Iterator[bytes]:
        """Yield the last lines, where no newline ended them."""
        for rank, (_, lines) in sorted(self._open.items()):
            yield from self._wanted(lines.rest(), rank)
        self._open.clear()

    def _wanted(self, lines: Iterator[Line], rank: int) -> Iterator[bytes]:
        mark = f"[rank {rank}] ".encode() if self._ranks else b""
        for line, at in lines:
            if self._grep is None or self._grep.search(line.decode(errors="surrogateescape")):
                time = f"{_time(at)} ".encode() if self._times else b""
                yield b"%b%b%b\n" % (mark, time, line)


def _time(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else "-"


def pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression.

    Raises:
        ClientError: the text is none.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ClientError(
            f"--grep {text!r} is no regular expression: {error}",
            hint=f"to look for the text itself, write {quote(re.escape(text))}",
            code="option_invalid",
        ) from error

"""The lines of a log, filtered by a pattern and marked with rank and time, across chunks."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote

from forge_client.cli.logs.reader import Piece
from forge_client.errors import ClientError

# A job that never ends its line must not fill the memory.
LINE_BYTES = 1 << 20


Line = tuple[bytes, datetime | None]
"""A line without its newline, and when its beginning was stored."""


class Lines:
    """Splits the output of one rank of one attempt; lines over a MiB are cut into several."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at: datetime | None = None

    def feed(self, piece: Piece) -> Iterator[Line]:
        """Yield the lines that a piece completes."""
        *ended, rest = piece.data.split(b"\n")
        for part in ended:
            yield from self._add(part, piece.at)
            yield self._end()
        yield from self._add(rest, piece.at)

    def rest(self) -> Iterator[Line]:
        """Yield the last line if it does not end with a newline."""
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
    """Turns pieces into the selected lines.

    Args:
        grep: the expression that a line must contain, see `pattern`; None selects all lines.
        ranks: whether to mark each line with the rank that wrote it.
        times: whether to mark each line with the time when it was stored.
    """

    def __init__(
        self, grep: re.Pattern[str] | None = None, *, ranks: bool = False, times: bool = False
    ) -> None:
        self._grep = grep
        self._ranks = ranks
        self._times = times
        self._open: dict[int, tuple[int, Lines]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to do; if not, the bytes are best left unchanged."""
        return bool(self._grep or self._ranks or self._times)

    def shaped(self, piece: Piece) -> Iterator[bytes]:
        """Yield the selected lines that a piece completes, each with a newline."""
        attempt, lines = self._open.get(piece.rank, (piece.attempt, Lines()))
        if attempt != piece.attempt:
            yield from self._wanted(lines.rest(), piece.rank)
            lines = Lines()
        self._open[piece.rank] = piece.attempt, lines
        yield from self._wanted(lines.feed(piece), piece.rank)

    def rest(self) -> Iterator[bytes]:
        """Yield the last lines that do not end with a newline."""
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
    """Compile a regular expression.

    Raises:
        ClientError: the text is not a regular expression.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ClientError(
            f"--grep {text!r} is no regular expression: {error}",
            hint=f"to look for the text itself, write {quote(re.escape(text))}",
            code="option_invalid",
        ) from error

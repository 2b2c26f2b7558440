"""The lines of a log, filtered by a pattern and marked with rank and time, across chunks."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote

from forge_client.errors import InvalidInput
from forge_client.results.log_reader import LogPiece

# Of a terminal: cyan, yellow, green, magenta, blue, and the bright ones. Red is for errors.
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
# A job that never ends its line must not fill the memory.
LINE_BYTES = 1 << 20


Line = tuple[bytes, datetime | None]
"""A line without its newline, and when its beginning was stored."""


class Lines:
    """Splits the output of one rank of one attempt; lines over a MiB are cut into several."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at: datetime | None = None

    def feed(self, piece: LogPiece) -> Iterator[Line]:
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
    """Turns pieces into the selected lines. Those of a job with several ranks begin with the rank.

    Args:
        grep: the expression that a line must contain, see `pattern`; None selects all lines.
        times: whether to mark each line with the time when it was stored.
        colour: whether each rank has a colour.
    """

    def __init__(
        self, grep: re.Pattern[str] | None = None, *, times: bool = False, colour: bool = False
    ) -> None:
        self._grep = grep
        self._times = times
        self._colour = colour
        self._mixed = False
        self._open: dict[int, tuple[int, Lines]] = {}

    def shaped(self, piece: LogPiece) -> Iterator[bytes]:
        """Yield the selected lines that a piece completes; without a filter or mark, its bytes."""
        self._mixed = piece.mixed
        if not (self._grep or self._times or self._mixed):
            yield piece.data
            return
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
        mark = self._mark(rank) if self._mixed else b""
        for line, at in lines:
            if self._grep is None or self._grep.search(line.decode(errors="surrogateescape")):
                time = f"{_time(at)} ".encode() if self._times else b""
                yield b"%b%b%b\n" % (mark, time, line)

    def _mark(self, rank: int) -> bytes:
        mark = f"[rank {rank}]"
        if self._colour:
            mark = f"\x1b[{COLOURS[rank % len(COLOURS)]}m{mark}\x1b[0m"
        return f"{mark} ".encode()


def _time(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else "-"


def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression; `ClientError` if the text is not a regular expression."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"--grep {text!r} is not a regular expression: {error}",
            hint=f"to search for the text itself, write {quote(re.escape(text))}",
        ) from error

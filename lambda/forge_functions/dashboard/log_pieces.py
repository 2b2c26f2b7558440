"""A job's log in pieces for a page: the tail, later output, earlier output; each byte once."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, Self

from forge_schema.database.pool import Row
from forge_schema.model.reading import INTEGER, LARGEST
from forge_schema.read.jobs import Jobs
from forge_schema.storage import ObjectMissing, ObjectTooLarge, Store
from forge_schema.storage.store import small
from forge_schema.zstd import ZstdError, first_bytes

from forge_functions.errors import Refused

LARGEST_RANK = 2**15 - 1
_FORM = re.compile(r"(\d{1,19})\.(\d{1,5})\.(-1|\d{1,10})\.(\d{1,10})")
# Chunks are unpacked in memory, and their size is what the worker claimed. Workers write 4 MiB.
LARGEST_CHUNK = 16 << 20
TAIL_BYTES = 64 << 10
# As JSON it must fit into the largest answer of a Lambda function.
MOST_BYTES = 512 << 10
# Each chunk is an object to fetch.
MOST_CHUNKS = 40


@dataclass(frozen=True, order=True)
class LogPlace:
    """A position in a log: a chunk, and the `offset` in bytes within it."""

    token: int
    rank: int
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.token}.{self.rank}.{self.number}.{self.offset}"

    @property
    def chunk(self) -> tuple[int, int, int]:
        """The chunk's position in the index."""
        return self.token, self.rank, self.number

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position.

        Raises:
            Refused: 422 for anything else.
        """
        match = _FORM.fullmatch(text)
        numbers = [int(part) for part in match.groups()] if match else []
        most = (LARGEST, LARGEST_RANK, INTEGER, INTEGER)
        if not match or any(n > limit for n, limit in zip(numbers, most, strict=True)):
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "invalid",
                f"{text!r} is not a position in a log",
                hint="reload the page",
            )
        return cls(*numbers)


def beginning(rank: int) -> LogPlace:
    """Return the position before all output of a rank."""
    return LogPlace(0, rank, -1, 0)


def end(rank: int) -> LogPlace:
    """Return a position after all output of a rank."""
    return LogPlace(LARGEST, rank, INTEGER, 0)


@dataclass(frozen=True)
class PagePiece:
    """Some bytes of an attempt's output; `missing` bytes before them are not available."""

    attempt: int
    token: int
    data: bytes
    missing: int = 0


@dataclass
class Pieces:
    """Pieces in reading order, and the positions before the first and after the last.

    `earlier` and `more` tell whether there is more output before and after them.
    """

    first: LogPlace
    last: LogPlace
    pieces: list[PagePiece] = field(default_factory=list)
    earlier: bool = False
    more: bool = False


class _New(NamedTuple):
    row: Row
    offset: int
    missing: int


class LogPieces:
    """Reads the output of one rank of a job, in all attempts or in one."""

    def __init__(
        self, jobs: Jobs, store: Store, job_id: int, *, rank: int = 0, attempt: int | None = None
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._job_id = job_id
        self._rank = rank
        self._attempt = attempt

    def tail(self) -> Pieces:
        """Return the last lines."""
        rows = self._before(end(self._rank).chunk)
        if not rows:
            place = beginning(self._rank)
            return Pieces(place, place)
        return self.before(LogPlace(*_chunk(rows[0]), rows[0]["bytes"]))

    def before(self, place: LogPlace) -> Pieces:
        """Return the lines before a position, starting at the beginning of a line if possible."""
        got = Pieces(place, place)
        room = TAIL_BYTES
        for row in self._before((*place.chunk[:2], place.number + 1)):
            offset = place.offset if _chunk(row) == place.chunk else row["bytes"]
            data = self._data(row)
            start = 0 if data is None else _line_start(data[:offset], offset - room)
            shown = b"" if data is None else data[start:offset]
            missing = offset if data is None else 0
            got.pieces.insert(0, PagePiece(row["attempt"], row["token"], shown, missing))
            got.first = LogPlace(*_chunk(row), start)
            room -= len(shown)
            if room <= 0 or start or len(got.pieces) == MOST_CHUNKS:
                break
        got.earlier = got.first.offset > 0 or bool(self._before(got.first.chunk))
        return got

    def after(self, place: LogPlace, *, writing: int | None) -> Pieces:
        """Return the output after a position.

        Args:
            place: the end of the output read so far.
            writing: the attempt that may write more, if any. Its chunks whose predecessor has not
                arrived yet are left for the next call.
        """
        got = Pieces(place, place)
        room = MOST_BYTES
        for row, offset, missing in self._new(place):
            if missing and row["attempt"] == writing:
                return got
            if room <= 0 or len(got.pieces) == MOST_CHUNKS:
                got.more = True
                return got
            data = self._data(row)
            upto = row["bytes"] if data is None else min(offset + room, row["bytes"])
            shown = b"" if data is None else data[offset:upto]
            lost = missing + upto - offset - len(shown)
            got.pieces.append(PagePiece(row["attempt"], row["token"], shown, lost))
            got.last, got.more = LogPlace(*_chunk(row), upto), upto < row["bytes"]
            room -= len(shown)
        return got

    def whole(self) -> Iterator[bytes]:
        """Yield all output so far."""
        got = Pieces(beginning(self._rank), beginning(self._rank), more=True)
        while got.more:
            got = self.after(got.last, writing=None)
            yield from (piece.data for piece in got.pieces)

    def _new(self, place: LogPlace) -> Iterator[_New]:
        """Yield the chunks not completely read, and the number of missing bytes before each."""
        token, written = 0, 0
        rows = self._jobs.log_chunks(
            self._job_id,
            after=(*place.chunk[:2], place.number - 1),
            attempt=self._attempt,
            rank=self._rank,
        )
        for row in rows:
            here = _chunk(row) == place.chunk
            missing = 0 if here else row["start"] - (written if row["token"] == token else 0)
            offset = place.offset if here else 0
            if offset < row["bytes"]:
                yield _New(row, offset, missing)
            token, written = row["token"], row["start"] + row["bytes"]

    def _before(self, chunk: tuple[int, int, int]) -> list[Row]:
        return self._jobs.log_chunks_before(
            self._job_id, before=chunk, attempt=self._attempt, rank=self._rank
        )

    def _data(self, row: Row) -> bytes | None:
        """Return a chunk's verified output; None if it is gone or damaged."""
        if row["bytes"] > LARGEST_CHUNK:
            return None
        try:
            packed = small(self._store, row["key"], 2 * LARGEST_CHUNK)
            data = first_bytes(packed, row["bytes"] + 1, LARGEST_CHUNK)
        except (ObjectMissing, ObjectTooLarge, ZstdError):
            return None
        sound = len(data) == row["bytes"] and hashlib.sha256(data).hexdigest() == row["sha256"]
        return data if sound else None


def _chunk(row: Row) -> tuple[int, int, int]:
    return row["token"], row["rank"], row["number"]


def _line_start(data: bytes, at: int) -> int:
    """Return the first start of a line, or else of a character, at or after a position."""
    if at <= 0:
        return 0
    start = data.find(b"\n", at - 1) + 1
    if 0 < start < len(data):
        return start
    while at < len(data) and data[at] & 0xC0 == 0x80:  # noqa: PLR2004 - continuation bytes of UTF-8
        at += 1
    return at

"""Reads a job's log piece by piece, in order, without gaps or duplicates, also until its end."""

from __future__ import annotations

import codecs
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from forge_schema.model.reading import BEGINNING, THE_END, Place

from forge_client.errors import ClientError, Outage
from forge_client.plain.unpacking import OF_ONE_FILE

if TYPE_CHECKING:
    from forge_schema.model.job import JobDetail
    from forge_schema.model.stored import LogChunk

    from forge_client.backend import Backend


QUICKEST_S = 0.1
TIMES = dict.fromkeys(("due_in_s", "ran_s", "saved_s"))
UTF_8 = codecs.getincrementaldecoder("utf-8")


class LogPiece(NamedTuple):
    """Some output of an attempt; `missing` bytes before it are not available anywhere.

    `at` is when it was stored. If `mixed`, output of other ranks may follow.
    """

    attempt: int
    data: bytes
    missing: int = 0
    rank: int = 0
    at: datetime | None = None
    mixed: bool = False


class Chosen(TypedDict):
    """The filters of a request to the backend; None means no filter."""

    attempt: int | None
    rank: int | None
    since: datetime | None


class LogPart(NamedTuple):
    """The part of a log to read, by attempt, rank, time stored and number of last lines."""

    attempt: int | None = None
    rank: int | None = None
    since: datetime | None = None
    tail: int | None = None

    @property
    def chosen(self) -> Chosen:
        """The filters of a request to the backend."""
        return {"attempt": self.attempt, "rank": self.rank, "since": self.since}


class Start(NamedTuple):
    """Where to start: after a place, where the output has `end` bytes, skipping `skip` more."""

    place: Place
    end: int
    skip: int = 0


class LogReader:
    """Remembers its position, `at`; each call of `new` continues from there."""

    def __init__(
        self, backend: Backend, job_id: int, part: LogPart | None = None, start: Start | None = None
    ) -> None:
        self._backend = backend
        self._job_id = job_id
        self._chosen = (part or LogPart()).chosen
        self.at = start or Start(BEGINNING, 0)
        # Why the first of the chunks that cannot be read cannot.
        self.damaged: ClientError | None = None

    def new(self, *, final: bool) -> Iterator[LogPiece]:
        """Read the output stored so far.

        Args:
            final: whether no more output can come. Until then, a chunk whose predecessor is not
                there yet is left for the next call.
        """
        while chunks := self._backend.log_chunks(self._job_id, after=self.at.place, **self._chosen):
            for chunk in chunks:
                missing = chunk.start - self._expected(chunk)
                if missing > 0 and not final:
                    return
                read = log_bytes(self._backend, chunk)
                if isinstance(read, ClientError):
                    self.damaged, missing = self.damaged or read, max(missing, 0) + chunk.bytes
                data = b"" if isinstance(read, ClientError) else read[self.at.skip :]
                self.at = Start(chunk.place, chunk.start + chunk.bytes)
                yield LogPiece(chunk.attempt, data, missing, chunk.rank, chunk.created_at)

    def _expected(self, chunk: LogChunk) -> int:
        if chunk.place[:2] == self.at.place[:2]:
            return self.at.end
        # Output from before the requested time does not count as missing.
        return chunk.start if self._chosen["since"] else 0


class LogReading:
    """Reads one part of a job's log, once or while it grows.

    Ranks write at the same time, so each has its own reader: one position cannot cover all of them.
    """

    def __init__(self, backend: Backend, job: JobDetail, part: LogPart) -> None:
        parts = [part._replace(rank=rank) for rank in _ranks(job, part)]
        self._mixed = len(parts) > 1
        self._readers = [_reader(backend, job.job_id, each) for each in parts]

    @property
    def damaged(self) -> ClientError | None:
        """Why the first of the chunks that could not be read could not; None without such."""
        return next((reader.damaged for reader in self._readers if reader.damaged), None)

    def new(self, *, final: bool) -> Iterator[LogPiece]:
        """Read the output stored so far, as `LogReader.new` does, one rank after another."""
        for reader in self._readers:
            for piece in reader.new(final=final):
                yield piece._replace(mixed=self._mixed)


def log_bytes(backend: Backend, chunk: LogChunk) -> bytes | ClientError:
    """Return a chunk's output, or why it has none; the others can be read all the same."""
    try:
        return backend.log_bytes(chunk)
    except ClientError as error:
        if error.code not in OF_ONE_FILE:
            raise
        return error


def _reader(backend: Backend, job_id: int, part: LogPart) -> LogReader:
    start = None if part.tail is None else tail(backend, job_id, part)
    return LogReader(backend, job_id, part, start)


def _ranks(job: JobDetail, part: LogPart) -> Sequence[int | None]:
    if part.rank is not None:
        return [part.rank]
    nodes = job.spec.get("max_nodes") or job.nodes
    return range(nodes) if nodes > 1 else [None]


def tail(backend: Backend, job_id: int, part: LogPart) -> Start | None:
    """Return where the last `part.tail` lines begin; None if the log has no more lines than that.

    The end of an attempt or of a rank's output also ends its last line.
    """
    wanted, end = part.tail or 0, 0
    writer: tuple[int, ...] = ()
    for chunk in _backwards(backend, job_id, part):
        if writer != chunk.place[:2]:
            writer, end = chunk.place[:2], chunk.start + chunk.bytes
        if wanted == 0:
            return Start(chunk.place, end)
        read = log_bytes(backend, chunk)
        data = b"" if isinstance(read, ClientError) else read
        # A newline at the very end does not begin another line.
        for begin in _line_starts(data, chunk.start, data_end=end - chunk.start):
            wanted -= 1
            if wanted == 0:
                token, rank, number = chunk.place
                return Start((token, rank, number - 1), chunk.start, begin)
    return None


def _backwards(backend: Backend, job_id: int, part: LogPart) -> Iterator[LogChunk]:
    place = THE_END
    while chunks := backend.log_chunks_before(job_id, before=place, **part.chosen):
        yield from chunks
        place = chunks[-1].place


def _line_starts(data: bytes, start: int, *, data_end: int) -> Iterator[int]:
    """Yield where lines begin in a chunk, last line first.

    Args:
        data: the chunk.
        start: its position in the output; its first byte begins a line only at 0.
        data_end: where the whole output ends, relative to the chunk's first byte.
    """
    at = len(data)
    while (at := data.rfind(b"\n", 0, at)) >= 0:
        if at + 1 < data_end:
            yield at + 1
    if start == 0:
        yield 0


def _silent(_text: str) -> None:
    """Say nothing."""


def follow(
    backend: Backend,
    job_id: int,
    part: LogPart | None = None,
    *,
    say: Callable[[str], None] = _silent,
) -> Iterator[LogPiece | JobDetail]:
    """Yield output as it arrives, and the job's status first, last and after each change.

    The start or end of an attempt comes after all output written before it.

    Args:
        backend: the backend that has the job.
        job_id: the job.
        part: the part of its output; with an attempt, only that attempt is followed.
        say: tells that nothing answers for a while.
    """
    part = part or LogPart()
    reading: LogReading | None = None
    known: JobDetail | None = None
    pause, outage = QUICKEST_S, Outage()
    while True:
        early = written = False
        try:
            # In this order: the output of an ended attempt is stored before its end.
            status = backend.job(job_id)
            over = _over(status, part.attempt)
            moved = not over and (known is None or _moved(known, status))
            if early := moved and _goes_on(known, status):
                yield status
                known = status
            reading = reading or LogReading(backend, status, part)
            for piece in reading.new(final=over):
                written = True
                yield piece
        except ClientError as error:
            if outage.is_new and known is not None:
                say(f"{error.message}; waiting until it does")
            if known is None or not outage.passes(error):
                raise
            time.sleep(backend.slowest_s)
            continue
        outage.over()
        if over or (moved and not early):
            yield status
        if over:
            return
        known = status
        pause = QUICKEST_S if moved or written else min(pause * 1.3, backend.slowest_s)
        time.sleep(pause)


def _moved(known: JobDetail, status: JobDetail) -> bool:
    # These times change with every query.
    return {**dict(status), **TIMES} != {**dict(known), **TIMES}


def _goes_on(known: JobDetail | None, status: JobDetail) -> bool:
    """Tell whether there is nothing left to read of the attempts before the current one."""
    if status.state != "running":
        return status.attempt == 0
    return status.attempt == (known.attempt if known else 1)


def _over(status: JobDetail, attempt: int | None) -> bool:
    if status.terminal or attempt is None:
        return status.terminal
    return (status.attempt, status.state != "running") >= (attempt, True)


class Texts:
    """Decodes the output of each rank; a piece may end in the middle of a character."""

    def __init__(self) -> None:
        self._decoders: defaultdict[int, codecs.IncrementalDecoder]
        self._decoders = defaultdict(partial(UTF_8, errors="replace"))

    def of(self, piece: LogPiece) -> str:
        """Return the text of a piece."""
        return self._decoders[piece.rank].decode(piece.data)

    def rest(self) -> list[str]:
        """Return what is left at the end."""
        rests = [decoder.decode(b"", final=True) for decoder in self._decoders.values()]
        return [rest for rest in rests if rest]


def texts_of(pieces: Iterable[LogPiece]) -> Iterator[str]:
    """Yield the text of pieces, in their order."""
    texts = Texts()
    for piece in pieces:
        yield texts.of(piece)
    yield from texts.rest()

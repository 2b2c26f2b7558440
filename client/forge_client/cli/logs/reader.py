"""Reads a job's log piece by piece, in order, nothing lost and nothing twice."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from forge_schema.model.stored import LogChunk

from forge_client.backend import BEGINNING, Backend, Place


@dataclass(frozen=True)
class Piece:
    """Some output of an attempt; `missing` bytes before it are nowhere to be had.

    `at` is when it was stored.
    """

    attempt: int
    data: bytes
    missing: int = 0
    rank: int = 0
    at: datetime | None = None


class Chosen(TypedDict):
    """What a backend is asked for; None is all."""

    attempt: int | None
    rank: int | None
    since: datetime | None


@dataclass(frozen=True)
class Part:
    """A part of a log: of an attempt, of a rank, stored since a time, the last so many lines."""

    attempt: int | None = None
    rank: int | None = None
    since: datetime | None = None
    tail: int | None = None

    @property
    def chosen(self) -> Chosen:
        """What a backend is asked for."""
        return {"attempt": self.attempt, "rank": self.rank, "since": self.since}


@dataclass(frozen=True)
class Start:
    """Where to begin: after a place, where the output is `end` bytes long, and `skip` more."""

    place: Place
    end: int
    skip: int = 0


class LogReader:
    """Remembers where it is; each call of `new` goes on from there."""

    def __init__(
        self, backend: Backend, job_id: int, part: Part | None = None, start: Start | None = None
    ) -> None:
        self._backend = backend
        self._job_id = job_id
        self._chosen = (part or Part()).chosen
        begin = start or Start(BEGINNING, 0)
        self._place, self._end, self._skip = begin.place, begin.end, begin.skip

    def new(self, *, final: bool) -> Iterator[Piece]:
        """Read what is there by now.

        Args:
            final: whether nothing can come any more. Until then a chunk whose predecessor is
                not there yet is left for the next call.
        """
        while chunks := self._backend.log_chunks(self._job_id, after=self._place, **self._chosen):
            for chunk in chunks:
                missing = chunk.start - self._expected(chunk)
                if missing and not final:
                    return
                data = self._backend.log_bytes(chunk)[self._skip :]
                self._place, self._end, self._skip = chunk.place, chunk.start + chunk.bytes, 0
                yield Piece(chunk.attempt, data, missing, chunk.rank, chunk.created_at)

    def _expected(self, chunk: LogChunk) -> int:
        if chunk.place[:2] == self._place[:2]:
            return self._end
        # What was stored before the time that is asked for is not missed.
        return chunk.start if self._chosen["since"] else 0

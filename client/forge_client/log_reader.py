"""Reads a job's log piece by piece, in order, nothing lost and nothing twice."""

from collections.abc import Iterator
from dataclasses import dataclass

from forge_client.backend import BEGINNING, Backend, Place
from forge_client.records import LogChunk


@dataclass(frozen=True)
class Piece:
    """Some output of an attempt; `missing` bytes before it are nowhere to be had."""

    attempt: int
    data: bytes
    missing: int = 0


class LogReader:
    """Remembers where it is; each call of `new` goes on from there."""

    def __init__(self, backend: Backend, job_id: int, *, attempt: int | None = None) -> None:
        self._backend = backend
        self._job_id = job_id
        self._attempt = attempt
        self._place: Place = BEGINNING
        self._end = 0

    def new(self, *, final: bool) -> Iterator[Piece]:
        """Read what is there by now.

        Args:
            final: whether nothing can come any more. Until then a chunk whose predecessor is
                not there yet is left for the next call.
        """
        while chunks := self._backend.log_chunks(
            self._job_id, after=self._place, attempt=self._attempt
        ):
            for chunk in chunks:
                missing = chunk.start - self._expected(chunk)
                if missing and not final:
                    return
                data = self._backend.log_bytes(chunk)
                self._place, self._end = chunk.place, chunk.start + chunk.bytes
                yield Piece(chunk.attempt, data, missing)

    def _expected(self, chunk: LogChunk) -> int:
        return self._end if chunk.place[:2] == self._place[:2] else 0

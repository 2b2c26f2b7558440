"""Finds where the last lines of a log begin, from its end: the rest is not even fetched."""

from collections.abc import Iterator

from forge_schema.model.stored import LogChunk

from forge_client.backend import THE_END, Backend
from forge_client.cli.logs.reader import Part, Start


def tail(backend: Backend, job_id: int, part: Part) -> Start | None:
    """Return where the last `part.tail` lines begin; None where the log has no more than that.

    An attempt, and a rank, ends its last line in any case.
    """
    wanted, end = part.tail or 0, 0
    writer: tuple[int, ...] = ()
    for chunk in _backwards(backend, job_id, part):
        if writer != chunk.place[:2]:
            writer, end = chunk.place[:2], chunk.start + chunk.bytes
        if wanted == 0:
            return Start(chunk.place, end)
        data = backend.log_bytes(chunk)
        # A newline at the very end begins no line.
        for begin in _line_starts(data, chunk.start, data_end=end - chunk.start):
            wanted -= 1
            if wanted == 0:
                token, rank, number = chunk.place
                return Start((token, rank, number - 1), chunk.start, begin)
    return None


def _backwards(backend: Backend, job_id: int, part: Part) -> Iterator[LogChunk]:
    place = THE_END
    while chunks := backend.log_chunks_before(job_id, before=place, **part.chosen):
        yield from chunks
        place = chunks[-1].place


def _line_starts(data: bytes, start: int, *, data_end: int) -> Iterator[int]:
    """Yield where lines begin in a chunk, the last one first.

    Args:
        data: the chunk.
        start: where it stands in its output; its first byte begins a line only at 0.
        data_end: where the whole output ends, counted from the chunk's first byte.
    """
    at = len(data)
    while (at := data.rfind(b"\n", 0, at)) >= 0:
        if at + 1 < data_end:
            yield at + 1
    if start == 0:
        yield 0

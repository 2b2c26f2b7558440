"""Reading a job's log: which readers it takes, one for each rank, from where on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from forge_schema.model.job import JobDetail

from forge_client.backend import Backend
from forge_client.cli.logs.reader import LogReader, Part, Piece
from forge_client.cli.logs.tail import tail


class LogReading:
    """Reads one part of a job's log, as it is now or as it grows.

    Ranks write at the same time, so each has a reader: one place cannot say how far all were read.
    """

    def __init__(self, backend: Backend, job: JobDetail, part: Part) -> None:
        parts = [replace(part, rank=rank) for rank in _ranks(job, part)]
        self._readers = [_reader(backend, job.job_id, one) for one in parts]

    def new(self, *, final: bool) -> Iterator[Piece]:
        """Read what is there by now, as `LogReader.new` does, the ranks in turn."""
        for reader in self._readers:
            yield from reader.new(final=final)


def several_ranks(job: JobDetail, part: Part) -> bool:
    """Tell whether this part of a job's log is of more than one rank."""
    return len(_ranks(job, part)) > 1


def _reader(backend: Backend, job_id: int, part: Part) -> LogReader:
    start = None if part.tail is None else tail(backend, job_id, part)
    return LogReader(backend, job_id, part, start)


def _ranks(job: JobDetail, part: Part) -> Sequence[int | None]:
    if part.rank is not None:
        return [part.rank]
    needs = job.spec.get("resources")
    nodes = needs.get("nodes", 1) if isinstance(needs, dict) else 1
    return range(nodes) if nodes > 1 else [None]

"""A submitted job as a future."""

import codecs
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from forge_schema.model.explanation import Explanation
from forge_schema.model.job import JobStatus
from forge_schema.model.results import JobTest, MetricLine
from forge_schema.model.stored import Artifact, Checkpoint

from forge_client.backend import Backend
from forge_client.cli.logs.follow import QUICKEST_S, follow
from forge_client.cli.logs.reader import LogReader, Part, Piece
from forge_client.cli.show.endings import decisive, ending
from forge_client.downloads import download_all
from forge_client.errors import ClientError
from forge_client.findings import all_metrics, all_tests

TAIL_LINES = 20
UTF_8 = codecs.getincrementaldecoder("utf-8")


class JobFailed(ClientError):
    """The job ended without success.

    `status` has the `state`, `reason`, `exit_code` and `detail`; `tail` has the last lines of the
    log.
    """

    code = "job_failed"

    def __init__(self, status: JobStatus, tail: str) -> None:
        super().__init__(ending(status), hint=f"`forge logs {status.job_id}` shows all its output")
        self.status = status
        self.tail = tail

    def __str__(self) -> str:
        return f"{self.message}\n{self.tail}" if self.tail else self.message


class JobCancelled(JobFailed):
    """The job was cancelled."""

    code = "job_cancelled"


class Job:
    """A job by its id; every method asks the queue."""

    def __init__(self, backend: Backend, job_id: int) -> None:
        self.backend = backend
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other.id, other.backend) == (self.id, self.backend)

    def status(self) -> JobStatus:
        """Return the job's current status."""
        return self.backend.job(self.id)

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self.status().terminal

    def result(self, timeout: float | None = None) -> JobStatus:
        """Wait until the job succeeds, and return its status.

        Args:
            timeout: how long to wait, in seconds; None means without limit.

        Raises:
            JobFailed: it did not succeed; `JobCancelled` if it was cancelled. On several machines,
                the `tail` is of the rank that failed first.
            TimeoutError: it has not ended in time. The job continues.
        """
        status = self._wait(timeout)
        if status.state == "succeeded":
            return status
        kind = JobCancelled if status.state == "cancelled" else JobFailed
        raise kind(status, self.tail(rank=self._decisive(status)))

    def _decisive(self, status: JobStatus) -> int | None:
        """Return the rank that failed first; None if there is only one."""
        if status.nodes == 1:
            return None
        ended = decisive(self.backend.attempts(self.id)).get(status.attempt)
        return ended.rank if ended else 0

    def _wait(self, timeout: float | None) -> JobStatus:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = QUICKEST_S
        while not (status := self.status()).terminal:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.id} is {status.word} after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.3, self.backend.slowest_s)
        return status

    def logs(self, *, follow: bool = False, rank: int | None = None) -> Iterator[str]:
        """Yield the output of all attempts as text, in the chunks in which it was stored.

        Args:
            follow: whether to continue until the job ends.
            rank: only the output of this rank, of a job on several machines; None means all.
        """
        decoders: defaultdict[int, codecs.IncrementalDecoder]
        decoders = defaultdict(partial(UTF_8, errors="replace"))
        for piece in self._pieces(Part(rank=rank), follow=follow):
            yield decoders[piece.rank].decode(piece.data)
        for decoder in decoders.values():
            if rest := decoder.decode(b"", final=True):
                yield rest

    def _pieces(self, part: Part, *, follow: bool) -> Iterator[Piece]:
        if follow:
            followed = _follow(self, part)
            yield from (item for item in followed if isinstance(item, Piece))
        else:
            yield from LogReader(self.backend, self.id, part).new(final=True)

    def tail(self, lines: int = TAIL_LINES, *, rank: int | None = None) -> str:
        """Return the last lines of the output, of one rank or of the last one of all."""
        last: deque[str] = deque(maxlen=lines)
        rest = ""
        for text in self.logs(rank=rank):
            *whole, rest = (rest + text).split("\n")
            last.extend(whole)
        if rest:
            last.append(rest)
        return "\n".join(last)

    def explain(self, *, workers: int = 20) -> Explanation:
        """Explain why the job waits and what would start it, where it runs, or how it ended.

        Args:
            workers: how many workers to describe in detail, nearest first.
        """
        return self.backend.explain(self.id, workers=workers)

    def cancel(self) -> bool:
        """Cancel the job; return whether it will be, or already is, cancelled."""
        return self.backend.cancel(self.id) in {"running", "cancelled"}

    def approve(self) -> bool:
        """Approve the job, as an admin; return whether it is approved, now or before."""
        return self.backend.admin.approve([self.id])["approved"] == 1

    def found(self, *, rank: int = 0) -> dict[str, Any] | None:
        """Return what a rank of the job wrote to $FORGE_RESULT_FILE; None if it wrote no result."""
        return self.backend.findings.result(self.id, rank=rank).values

    def metrics(self, *, rank: int = 0, attempt: int | None = None) -> list[MetricLine]:
        """Return what the job wrote to $FORGE_METRICS_FILE, in order, in one or all attempts."""
        return list(all_metrics(self.backend.findings, self.id, rank=rank, attempt=attempt))

    def last_metrics(self, *, rank: int = 0, attempt: int | None = None) -> dict[str, Any]:
        """Return the last value of each metric, from the last 1000 lines of an attempt.

        Without `attempt`, of the newest attempt that wrote any.
        """
        found = self.backend.findings.last_metrics(self.id, rank=rank, attempt=attempt)
        return {metric.key: metric.value for metric in found}

    def tests(self) -> list[JobTest]:
        """Return the test results of the newest attempt that has any."""
        return list(all_tests(self.backend.findings, self.id))

    def artifacts(self) -> list[Artifact]:
        """Return the job's artifacts."""
        return self.backend.artifacts(self.id)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the job's checkpoints, newest first."""
        return self.backend.checkpoints(self.id)

    def download(self, to: Path | str) -> list[Path]:
        """Download and verify the job's artifacts into a folder, and return their paths."""
        return download_all(self.backend, self.artifacts(), Path(to))


def _follow(job: Job, part: Part) -> Iterator[Piece | JobStatus]:
    return follow(job.backend, job.id, part)

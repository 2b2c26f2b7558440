"""A submitted job as a future."""

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from forge_schema.model.explanation import Explanation
from forge_schema.model.job import EXPLAINED, Attempt, Event, JobDetail, JobStatus
from forge_schema.model.quantities import duration_text
from forge_schema.model.results import JobTest, MetricLine, Series
from forge_schema.model.stored import Artifact, Checkpoint

from forge_client.backend import Backend
from forge_client.code import differences, fetch
from forge_client.downloads import download_all
from forge_client.errors import ClientError, Outage
from forge_client.findings import all_metrics, all_tests
from forge_client.project.request import Request, several, words
from forge_client.project.submission import repeated
from forge_client.project.submit import planned_again
from forge_client.project.written import own_checkpoint
from forge_client.results.endings import check_acted, decisive, ending
from forge_client.results.log_reader import (
    QUICKEST_S,
    LogPart,
    LogPiece,
    LogReader,
    follow,
    texts_of,
)
from forge_client.results.names import chosen_files, require_attempt, require_rank
from forge_client.sdk.arguments import checked_verbs, waiting_s
from forge_client.sdk.function_runner import PICKLED, STORED
from forge_client.sdk.rows import Rows, jobs_html
from forge_client.sdk.rows import follow as follow_all
from forge_client.sdk.sending import end_dry_run
from forge_client.sdk.spec import ChangedSpec, NamedSpec, Time
from forge_client.sdk.watch import watch

TAIL_LINES = 20
# What runs a function, in the folder of its job.
RUN = ".forge-function/run.py"


class JobFailed(ClientError):
    """The job ended without success.

    `status` has the `state`, `reason`, `exit_code` and `detail`; `tail` has the last lines of the
    log.
    """

    def __init__(self, status: JobStatus, tail: str) -> None:
        super().__init__(ending(status), hint=f"`forge logs {status.job_id}` shows all its output")
        self.status = status
        self.tail = tail

    def __str__(self) -> str:
        return f"{self.message}\n{self.tail}" if self.tail else self.message


class JobCancelled(JobFailed):
    """The job was cancelled."""


@checked_verbs
class Job:
    """A job by its id; every method asks the queue."""

    def __init__(self, backend: Backend, job_id: int) -> None:
        self.backend = backend
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def _repr_html_(self) -> str:
        return jobs_html([self.status()])

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other.id, other.backend) == (self.id, self.backend)

    def status(self) -> JobDetail:
        """Return the job's current status, with what was asked for."""
        return self.backend.job(self.id)

    @property
    def state(self) -> str:
        """The state of `status()`, such as `queued` or `running`."""
        return self.status().state

    @property
    def name(self) -> str:
        """The job's name."""
        return self.status().name

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self.status().terminal

    def result(self, timeout: Time | None = None) -> Any:  # noqa: ANN401 - whatever it found
        """Wait until the job succeeds, and return what it wrote to $FORGE_RESULT_FILE.

        That is a JSON object; None if it wrote none.

        Args:
            timeout: how long to wait, such as `"1m"`, or in seconds; None means without limit.

        Raises:
            JobFailed: it did not succeed; `JobCancelled` if it was cancelled. On several machines,
                the `tail` is of the rank that failed first.
            TimeoutError: it has not ended in time. The job continues.
        """
        return self._outcome(self.wait(timeout))

    def future(self) -> Future[Any]:
        """Return a new future of the job, for `concurrent.futures` and `asyncio.wrap_future`.

        To cancel it is to stop waiting: the job continues.
        """
        future: Future[Any] = Future()
        watch(self.backend, self.id, self._outcome, future)
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait as `result` does, without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - most programs use none of it, and it takes a while

        return asyncio.wrap_future(self.future()).__await__()

    def _outcome(self, status: JobStatus) -> Any:  # noqa: ANN401 - as above
        """Return what an ended job found, or raise how it failed."""
        if status.state == "succeeded":
            return self._plain(self.found())
        raise self._failure(status)

    def _plain(self, document: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuse what a function returned and is no JSON: only its own job can load it."""
        maybe = document and document.keys() <= {PICKLED, STORED}
        if maybe and RUN in (self.status().spec.get("command") or ()):
            raise pickled(self.id)
        return document

    def _failure(self, status: JobStatus) -> JobFailed:
        kind = JobCancelled if status.state == "cancelled" else JobFailed
        return kind(status, self.tail(rank=self._decisive(status)))

    def _decisive(self, status: JobStatus) -> int | None:
        """Return the rank that failed first; None if there is only one."""
        if status.nodes == 1:
            return None
        ended = decisive(self.backend.attempts(self.id)).get(status.attempt)
        return ended.rank if ended else 0

    def wait(self, timeout: Time | None = None) -> JobDetail:
        """Wait until the job has ended, in whichever way, and return its status.

        Args:
            timeout: how long to wait, such as `"1m"`, or in seconds; None means without limit.

        Raises:
            TimeoutError: it has not ended in time. The job continues.
        """
        limit_s = waiting_s(timeout)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        pause, outage = QUICKEST_S, Outage()
        while not ((status := outage.ask(self.status)) and status.terminal):
            if deadline is not None and time.monotonic() >= deadline:
                word = status.state if status else "out of reach"
                raise TimeoutError(f"job {self.id} is {word} after {duration_text(limit_s or 0)}")
            time.sleep(pause)
            pause = min(pause * 1.3, self.backend.slowest_s)
        return status

    def watch(self, timeout: Time | None = None) -> JobDetail:
        """Show the job until it has ended, and return its status.

        In a notebook its progress is shown in place, elsewhere each change is a line on stdout.

        Raises:
            TimeoutError: it has not ended in time. The job continues.
        """
        follow_all(self.backend, [self.id], waiting_s(timeout))
        return self.status()

    def logs(
        self, *, follow: bool = False, rank: int | None = None, attempt: int | None = None
    ) -> Iterator[str]:
        """Yield the output of all attempts as text, in the chunks in which it was stored.

        Args:
            follow: whether to continue until the job ends.
            rank: only the output of this rank, of a job on several machines; None means all.
            attempt: only the output of this attempt; None means all.

        Raises:
            ClientError: there is no such rank or attempt; or, after all others, a part of it is
                damaged. With `follow`, neither.
        """
        part = LogPart(rank=rank, attempt=attempt)
        if follow:
            followed = _follow(self, part)
            yield from texts_of(item for item in followed if isinstance(item, LogPiece))
            return
        if rank is not None or attempt is not None:
            status = self.status()
            require_rank(status, rank)
            require_attempt(status, attempt)
        reader = LogReader(self.backend, self.id, part)
        yield from texts_of(reader.new(final=True))
        if reader.damaged:
            raise reader.damaged

    def tail(self, lines: int = TAIL_LINES, *, rank: int | None = None) -> str:
        """Return the last lines of the output, of one rank or of the last one of all."""
        last: deque[str] = deque(maxlen=lines)
        rest = ""
        reader = LogReader(self.backend, self.id, LogPart(rank=rank))
        for text in texts_of(reader.new(final=True)):
            *whole, rest = (rest + text).split("\n")
            last.extend(whole)
        if rest:
            last.append(rest)
        return "\n".join(last)

    def explain(self, *, workers: int = EXPLAINED) -> Explanation:
        """Explain why the job waits and what would start it, where it runs, or how it ended.

        Args:
            workers: how many workers to describe in detail, nearest first.
        """
        return self.backend.explain(self.id, workers=workers)

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the job; return whether it will be, or already is, cancelled.

        The audit trail keeps the `reason`, of at most 200 characters.
        """
        return self.backend.cancel(self.id, reason=reason) in {"running", "cancelled"}

    def retry(self, from_checkpoint: str | None = None) -> bool:
        """Queue the failed job again, with all retries restored; return whether it had failed.

        Args:
            from_checkpoint: the checkpoint of this job to begin with, such as `1.31`, if it is not
                its newest.

        Raises:
            ClientError: it has no such checkpoint.
        """
        chosen = own_checkpoint(self.id, from_checkpoint) if from_checkpoint else None
        try:
            self.backend.retry(self.id, checkpoint=chosen)
        except ClientError as error:
            if error.code != "not_retryable":
                raise
            return False
        return True

    def preempt(self) -> bool:
        """Preempt the running job, as a spot notice would; return whether it was asked to end.

        It resumes elsewhere.
        """
        return self.backend.preempt(self.id)

    def change(self, **fields: Unpack[ChangedSpec]) -> None:
        """Change the job while it waits: its priority, queue, time limit, resources, retries.

        It keeps its place. Labels and resources are merged.

        Raises:
            ClientError: a field is invalid or cannot be changed, or the job does not wait.
        """
        given = Request().changed(fields).fields()
        self.backend.change(self.id, {name: value for name, value in given.items() if value != {}})

    def annotate(
        self,
        *,
        note: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        archived: bool | None = None,
    ) -> None:
        """Set the job's note, add and remove tags, archive it or bring it back.

        What is left out stays as it is; an empty note is none. Lists leave out archived jobs.

        Raises:
            ClientError: a tag is invalid, or the job has too many, or it cannot be archived
                because it has not ended.
        """
        acted = self.backend.annotate(
            [self.id], note=note, add=add, remove=remove, archived=archived
        )
        check_acted(acted)

    def tag(self, *tags: str) -> None:
        """Add tags to the job, so that `client.jobs("tag:paper")` finds it.

        Raises:
            ClientError: a tag is invalid, or the job has too many.
        """
        self.annotate(add=tags)

    def delete(self) -> None:
        """Delete the ended job with its logs, metrics, checkpoints and artifacts.

        There is no way back. What it cost stays in the reports.

        Raises:
            ClientError: it has not ended, or an unfinished job needs it.
        """
        check_acted(self.backend.delete([self.id]))

    def rerun(
        self, command: Sequence[str] | str | None = None, **changes: Unpack[NamedSpec]
    ) -> "Job":
        """Submit the job again: the same code, command and options, but for what is given.

        Raises:
            ClientError: a change is unknown or invalid.
        """
        asked = repeated(self.backend.request(self.id), {"command": command, **changes})
        end_dry_run(lambda: planned_again(self.backend, asked))
        return Job(self.backend, self.backend.submit([asked])[0])

    def code(self, folder: Path | str) -> Path:
        """Unpack the job's code, as it was submitted, into an empty or new folder.

        Raises:
            ClientError: the job has no code, or the folder is not empty.
        """
        fetch(self.backend, self.status(), Path(folder))
        return Path(folder)

    def diff(self, other: "Job | Path | str" = ".") -> str:
        """Return the unified diff of the job's code and that of another job, or a folder.

        Raises:
            ClientError: one of them has no code.
        """
        second = other.status() if isinstance(other, Job) else Path(other)
        lines = differences(self.backend, self.status(), second)
        return "".join(f"{line}\n" for line in lines)

    def exec(self, command: Sequence[str] | str = ("sh",), *, rank: int = 0) -> int:
        """Run a command inside the running job, on this terminal; return its exit code.

        Raises:
            ClientError: the job does not run, or is not reached through a server.
        """
        from forge_client.http.backend import HttpBackend  # noqa: PLC0415 - httpx takes a while

        if not isinstance(self.backend, HttpBackend):
            raise ClientError(
                "a command inside a job needs a server",
                hint=f"set FORGE_URL, or run `forge exec {self.id}` on the job's machine",
                code="server_not_named",
            )
        return self.backend.enter(self.id, words(command), rank=rank)

    @contextmanager
    def port(self, port: int, *, local: int | None = None, rank: int = 0) -> Iterator[str]:
        """Connect a port of this machine's loopback address with a port of the running job.

        Yields its URL, `http://127.0.0.1:…`, which works until the block or the job ends. It runs
        OpenSSH's `ssh`.

        Args:
            port: the one that the job listens on, from 1024.
            local: the one on this machine, by default any that is free.
            rank: which of the job's machines.

        Raises:
            ClientError: the job is not reached, or the local port is in use.
        """
        from forge_client import tunnel  # noqa: PLC0415 - not every system has what it needs

        local = local or tunnel.free_port()
        with tunnel.forwarded(self.backend, self.id, {local: port}, rank=rank):
            yield f"http://{tunnel.LOOPBACK}:{local}"

    def attempts(self) -> Rows[Attempt]:
        """Return the job's finished attempts: where each ran, and why it ended."""
        return Rows(self.backend.attempts(self.id))

    def events(self) -> Rows[Event]:
        """Return the job's entries of the audit trail."""
        return Rows(self.backend.events(self.id))

    def approve(self) -> bool:
        """Approve the job, as an admin; return whether it is approved, now or before."""
        return self.backend.admin.approve([self.id]).approved == 1

    def found(self, *, rank: int = 0) -> dict[str, Any] | None:
        """Return what a rank of the job has written to $FORGE_RESULT_FILE, without waiting.

        None if it wrote no result. A job that failed may have one too.
        """
        return self.backend.findings.result(self.id, rank=rank).values

    def metrics(self, *, rank: int = 0, attempt: int | None = None) -> Rows[MetricLine]:
        """Return what the job wrote to $FORGE_METRICS_FILE, in order, in one or all attempts."""
        return Rows(all_metrics(self.backend.findings, self.id, rank=rank, attempt=attempt))

    def last_metrics(self, *, rank: int = 0, attempt: int | None = None) -> dict[str, Any]:
        """Return the last value of each metric, from the last 1000 lines of an attempt.

        Without `attempt`, of the newest attempt that wrote any.
        """
        last_metrics = self.backend.findings.last_metrics(self.id, rank=rank, attempt=attempt)
        return {metric.key: metric.value for metric in last_metrics}

    def curves(
        self,
        *,
        keys: Sequence[str] | str | None = None,
        attempt: int | None = None,
        rank: int = 0,
        since: float | None = None,
        until: float | None = None,
    ) -> Series:
        """Return the metrics and the use of the machine over time, thinned out to 500 points.

        With `since` and `until`, those points are all between these steps.
        """
        keys = None if keys is None else several(keys)
        return self.backend.findings.series(
            self.id, keys=keys, attempt=attempt, rank=rank, since=since, until=until
        )

    def tests(self) -> Rows[JobTest]:
        """Return the test results of the newest attempt that has any."""
        return Rows(all_tests(self.backend.findings, self.id))

    def artifacts(self) -> list[Artifact]:
        """Return the job's artifacts."""
        return self.backend.artifacts(self.id)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the job's checkpoints, newest first."""
        return self.backend.checkpoints(self.id)

    def download(self, to: Path | str, only: Sequence[str] | str = ()) -> list[Path]:
        """Download and verify the job's artifacts into a folder, and return their paths.

        Until the job has succeeded, and if it left none, the folder is empty and so is the list.

        Args:
            to: the folder.
            only: paths, or patterns such as `"best*.pt"`; without any, all artifacts.

        Raises:
            ClientError: there are artifacts, and one of `only` chooses none.
        """
        if files := self.artifacts():
            chosen = chosen_files(self.id, files, several(only)) if only else files
            return download_all(self.backend, chosen, Path(to))
        Path(to).mkdir(parents=True, exist_ok=True)
        return []


def pickled(job_id: int) -> ClientError:
    """Return the error for a result that is a pickle, which is not loaded unasked."""
    return ClientError(
        f"what job {job_id} returned is a pickle, and to load one can run code here",
        hint="if you trust the job, make the function with @job(pickled=True), and read it"
        f" with `.job({job_id}).result()`; or return numbers, text, lists and dicts",
        code="result_pickled",
    )


def _follow(job: Job, part: LogPart) -> Iterator[LogPiece | JobStatus]:
    return follow(job.backend, job.id, part)

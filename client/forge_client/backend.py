"""What the commands and the SDK ask of a Forge installation, whichever way they reach it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from forge_schema.model.admin import Myself
from forge_schema.model.explanation import Explanation
from forge_schema.model.fields import Record
from forge_schema.model.job import Attempt, Event, JobDetail, JobStatus, Template
from forge_schema.model.overview import Overview
from forge_schema.model.stored import Artifact, Checkpoint, LogChunk
from forge_schema.model.worker import WorkerInfo

from forge_client.administration import Administration
from forge_client.findings import Findings
from forge_client.project.bundle import Bundle
from forge_client.project.image_tar import ImageTar

Progress = Callable[[int], None]
"""Told the bytes moved since its last call."""

Place = tuple[int, int, int]
"""Where a log chunk stands in the reading order: token, rank, number."""

BEGINNING: Place = (0, 0, -1)
# The largest token, rank and number that HTTP takes.
THE_END: Place = (2**53 - 1, 2**15 - 1, 2**31 - 1)


class Standing(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Record):
    """One finding of `forge doctor`."""

    name: str
    standing: Standing
    detail: str
    hint: str = ""


class Backend(Protocol):
    """Every method may raise `ClientError`; one backend may be used from several threads."""

    slowest_s: float
    """How long who follows a quiet job rests between two looks, in seconds."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

    @property
    def admin(self) -> Administration:
        """What only admins may do."""

    @property
    def findings(self) -> Findings:
        """What jobs found out."""

    def me(self) -> Myself:
        """Return who asks."""

    def check(self, specs: Sequence[Mapping[str, Any]]) -> None:
        """Refuse what `submit` would refuse, before anything is uploaded for it."""

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Submit jobs, all of them or none, and return their ids in order.

        Args:
            specs: the fields of each; those of its `config_name` come first, if it has one.
        """

    def has_bundle(self, bundle: Bundle) -> bool:
        """Tell whether a bundle of this content is stored already."""

    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        """Store a packed folder."""

    def has_image(self, image: ImageTar) -> bool:
        """Tell whether a saved image of this content is stored already."""

    def upload_image(self, image: ImageTar, progress: Progress | None = None) -> None:
        """Store a saved image."""

    def job(self, job_id: int) -> JobDetail:
        """Return one job."""

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[JobStatus]:
        """Return the newest jobs first."""

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobStatus]:
        """Return many jobs by id; an unknown one is left out."""

    def cancel(self, job_id: int) -> str:
        """Cancel a job and return its state: `running` until its worker has stopped it."""

    def retry(self, job_id: int) -> None:
        """Give a failed or dead job fresh budgets and make it ready."""

    def preempt(self, job_id: int) -> bool:
        """Ask for a running job back; False when it does not run."""

    def attempts(self, job_id: int) -> list[Attempt]:
        """Return the finished attempts of a job, in order."""

    def explain(self, job_id: int, *, workers: int = 20) -> Explanation:
        """Return why a job is where it is, with this many workers, the nearest first."""

    def events(self, job_id: int) -> list[Event]:
        """Return what happened to a job, oldest first."""

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place = BEGINNING,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        """Return some log chunks after a place, in reading order; none when there are no more.

        With an attempt or a rank only its own; with a time, those stored since.
        """

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place = THE_END,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        """Return some log chunks before a place, the last one first; else as `log_chunks`."""

    def log_bytes(self, chunk: LogChunk) -> bytes:
        """Return a chunk's output, unpacked and verified."""

    def artifacts(self, job_id: int) -> list[Artifact]:
        """Return the files that a job left, ordered by path."""

    def checkpoints(self, job_id: int) -> list[Checkpoint]:
        """Return the complete checkpoints of a job, the newest first."""

    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        """Write an artifact to `path`, which appears whole and verified or not at all."""

    def workers(self) -> list[WorkerInfo]:
        """Return every worker."""

    def drain(self, worker_id: int, *, undo: bool = False) -> None:
        """Ask a worker to finish its jobs and take no more, or take the request back."""

    def overview(self, *, jobs: int = 0, workers: int = 0) -> Overview:
        """Return how everything stands, with so many running jobs and workers at most.

        Of jobs, those of the caller's owner are counted, and for an admin all.
        """

    def templates(self) -> list[Template]:
        """Return the owner's named job configs, by name."""

    def template(self, name: str) -> Template:
        """Return one of them."""

    def keep_template(self, name: str, spec: Mapping[str, Any]) -> None:
        """Keep a job config under a name, in place of the one before."""

    def remove_template(self, name: str) -> None:
        """Remove a job config."""

    def reports(self) -> list[str]:
        """Return the names of the reports."""

    def report(
        self, name: str, *, count: int, since: str | None = None, by: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Return the rows of a report since an age or a time, or of its groups."""

    def health(self) -> list[Check]:
        """Check everything that this backend stands on, without raising."""

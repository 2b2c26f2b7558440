"""What reaches a Forge installation: the service's verbs, transfers of files, and its checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from forge_schema.model.fields import Record
from forge_schema.model.quantities import names_text
from forge_schema.model.worker import WorkerInfo
from forge_schema.service.service import Service

from forge_client.errors import ClientError
from forge_client.uploads import Bundle, ImageTar, Progress

if TYPE_CHECKING:
    from forge_schema.model.stored import Artifact, LogChunk


SILENT_S = 120.0
SHOWN = 5
CURE = "cure that on its machine, or change the worker's settings (docs/worker-settings.md)"
ON_A_DISK = (
    "files of a job count as its memory there: choose a folder on a disk, with --worker-dir of"
    " `forge-worker` or --dir of `forge up`"
)


class Backend(Service, ABC):
    """The service through a server, or on the database and the store.

    All methods raise only `ClientError`; a backend may be used from several threads.
    """

    slowest_s: float
    """The longest pause, in seconds, between two checks of a quiet job."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *exc: object) -> None: ...

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The variables with which another `forge` reaches the same installation."""

    @abstractmethod
    def health(self) -> list[Check]:
        """Check everything that jobs need, without raising."""

    @abstractmethod
    def has_bundle(self, bundle: Bundle) -> bool:
        """Tell whether a bundle with this content is stored."""

    @abstractmethod
    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        """Store a packed folder."""

    @abstractmethod
    def missing_bytes(self, bundle: Bundle) -> int:
        """Return the size of a bundle's segments that are not stored; 0 if it is stored."""

    @abstractmethod
    def upload_segments(self, bundle: Bundle, progress: Progress | None = None) -> None:
        """Store a packed folder, of which only missing segments are sent."""

    @abstractmethod
    def has_image(self, image: ImageTar) -> bool:
        """Tell whether a saved image with this content is stored."""

    @abstractmethod
    def upload_image(self, image: ImageTar, progress: Progress | None = None) -> None:
        """Store a saved image."""

    @abstractmethod
    def log_bytes(self, chunk: LogChunk) -> bytes:
        """Return a chunk's output, decompressed and verified."""

    @abstractmethod
    def fetch_code(self, job_id: int, digest: str, path: Path) -> None:
        """Write an object of a job's code to `path`, verified."""

    @abstractmethod
    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        """Write an artifact to `path`, which appears complete and verified or not at all."""


class CheckStanding(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Record):
    """One finding of `forge doctor`."""

    name: str
    standing: CheckStanding
    detail: str
    hint: str = ""


def checked(name: str, look: Callable[[], Check]) -> list[Check]:
    """Return the finding of one check; an error is a finding too."""
    try:
        return [look()]
    except ClientError as error:
        return [failed(name, error)]


def failed(name: str, error: ClientError) -> Check:
    """Return an error as a finding."""
    return Check(name=name, standing=CheckStanding.FAIL, detail=error.message, hint=error.hint)


def workers_check(rows: list[WorkerInfo], hint: str) -> Check:
    """Check that a worker has reported lately, and no trouble; the hint says how to start one."""
    # One that an admin has added has no CPUs until it connects.
    heard = [
        row for row in rows if row.cpus and row.status != "offline" and row.silent_s < SILENT_S
    ]
    if not heard:
        detail = "no worker has reported in the last two minutes"
        return Check(name="workers", standing=CheckStanding.WARN, detail=detail, hint=hint)
    troubles = [(trouble, what) for row in heard for trouble, what in _troubles(row)]
    named = names_text([row.name for row in heard], SHOWN)
    return Check(
        name="workers",
        standing=CheckStanding.WARN if troubles else CheckStanding.OK,
        detail="; ".join(
            [f"{len(heard)} online: {named}", *(text for text, _ in troubles[:SHOWN])]
        ),
        hint="; ".join(dict.fromkeys(what for _, what in troubles[:SHOWN])),
    )


def _troubles(worker: WorkerInfo) -> Iterator[tuple[str, str]]:
    """Yield what keeps a worker's machine from jobs, or spoils them, and what to do."""
    seen = worker.condition
    if why := seen.get("constrained"):
        yield f"{worker.name} takes no jobs: {why}", CURE
    if seen.get("in_memory"):
        yield f"the folder of {worker.name} is in memory", ON_A_DISK

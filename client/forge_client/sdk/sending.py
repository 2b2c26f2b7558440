"""Turn folders and fields into jobs as the queue takes them, and upload what they need."""

import inspect
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_schema.model.job import Template

from forge_client.backend import Backend
from forge_client.errors import ClientError
from forge_client.project.bundle import Listing, scan
from forge_client.project.environment.packages import WithPackages
from forge_client.project.forge_toml import Project
from forge_client.project.notices import notices
from forge_client.project.request import Request
from forge_client.project.submission import (
    LIMIT,
    configured,
    specs,
    upload,
    upload_images,
    with_images,
    with_packages,
)
from forge_client.settings import Settings

OURS = "forge_client"
INCLUDE = re.compile(r"--include '?([^'\s]+)'?")


@dataclass(frozen=True)
class Parcel:
    """Files for jobs, `limit` the largest total size of them in bytes.

    With a `config`, the fields of that saved job config lie below those of the jobs.
    """

    listing: Listing
    limit: int = LIMIT
    config: str | None = None


@dataclass(frozen=True)
class Sender:
    """Sends jobs to a backend, as the owner that the settings name."""

    backend: Backend
    settings: Settings

    def submit(self, parcel: Parcel, requests: Sequence[Request]) -> list[int]:
        """Submit jobs on the same files, all of them or none, and return their ids."""
        return self.backend.submit(self.uploaded(parcel, requests)) if requests else []

    def uploaded(self, parcel: Parcel, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Have the queue check jobs, upload their files, and return them as it takes them."""
        requests, images = with_images(requests)
        kept = self.backend.template(parcel.config) if parcel.config else None
        whole = with_packages(requests, parcel.listing, kept.spec if kept else None)
        wanted = self._specs(whole, kept)
        self.backend.check(wanted)
        stored = upload(self.backend, whole.listing, limit=parcel.limit)
        upload_images(self.backend, images)
        return [{**spec, **whole.shown(spec), **stored.fields} for spec in wanted]

    def without_files(self, requests: Sequence[Request]) -> list[int]:
        """Submit jobs that have no files, and return their ids."""
        return self.backend.submit(specs(requests, owner=self.settings.job_owner, folder=Path()))

    def _specs(self, whole: WithPackages, kept: Template | None) -> list[dict[str, Any]]:
        owner, root = self.settings.job_owner, whole.listing.root
        if kept is None:
            return specs(whole.requests, owner=owner, folder=root)
        return [configured(one, kept, owner=owner, folder=root) for one in whole.requests]


def packed(
    project: Project, root: Path, *, limit: int | None = None, config: str | None = None
) -> Parcel:
    """List a project's folder; what is left out that jobs may need is a warning."""
    listing = scan(root, include=project.include)
    for said in notices(listing, project.command or []):
        _warn(said)
    return Parcel(listing, limit or project.limit or LIMIT, config)


def _warn(said: str) -> None:
    """Warn at the line outside this package that has the call, in the words of the SDK."""
    frame, level = inspect.currentframe(), 0
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == OURS:
        frame, level = frame.f_back, level + 1
    said = INCLUDE.sub(lambda option: f"include={[option[1]]}", said)
    warnings.warn(said.replace("use --secret", "use secrets=[…]"), stacklevel=level + 1)


def requests(
    project: Project, jobs: Iterable[Mapping[str, Any]], *, config: str | None = None
) -> list[Request]:
    """Return jobs with the project's forge.toml, unless a config replaces it, below their fields.

    Raises:
        ClientError: a field is unknown or invalid.
    """
    base = Request() if config else project.request()
    return [base.changed(_fields(job)) for job in ([jobs] if isinstance(jobs, Mapping) else jobs)]


def _fields(job: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(job, Mapping):
        return job
    raise ClientError(
        f"{job!r} is not the fields of a job",
        hint='give a dictionary for each job, such as {"command": "python train.py"}',
        code="option_invalid",
    )

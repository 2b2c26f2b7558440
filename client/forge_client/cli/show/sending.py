"""From a folder to submitted jobs, for the commands that submit."""

from collections.abc import Sequence
from pathlib import Path

from forge_client.backend import Backend
from forge_client.cli.jobs.submit import tell, tell_alone, tell_images, tell_left_out
from forge_client.cli.show import narration
from forge_client.cli.show.queued import tell_nobody
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.request import Request
from forge_client.project.submission import (
    LIMIT,
    specs,
    upload,
    upload_images,
    with_images,
    with_requirements,
)
from forge_client.settings import Settings


def send(
    backend: Backend,
    settings: Settings,
    project: Project,
    requests: Sequence[Request],
    folder: Path | None,
) -> list[int]:
    """Submit jobs by one call and return their ids; without a folder they have no code.

    Says it if no online worker can run the first of them.

    Raises:
        ClientError: something is wrong with the folder or with a job, or nothing answers.
    """
    requests, images = with_images(requests, bar=narration.transfer)
    listing = scan(folder, include=project.include) if folder else None
    if listing:
        tell_left_out(listing)
    requests = with_requirements(requests, listing) if listing else requests
    wanted = specs(requests, owner=settings.job_owner, folder=folder or Path())
    tell_alone(wanted)
    if listing is None:
        upload_images(backend, images, bar=narration.transfer)
    else:
        backend.check(wanted)
        stored = upload(backend, listing, limit=project.limit or LIMIT, bar=narration.transfer)
        tell(stored)
        tell_images(upload_images(backend, images, bar=narration.transfer))
        wanted = [{**spec, "bundle_digest": stored.bundle.digest} for spec in wanted]
    ids = backend.submit(wanted)
    # One look for them all: jobs of one call mostly ask for the same.
    tell_nobody(backend, ids[0])
    return ids

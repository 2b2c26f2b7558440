"""Submits a folder's jobs, and reports the upload, their resources and matching workers."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from forge_schema.model.job import JobDetail
from forge_schema.model.quantities import counted, names_text, size_text

from forge_client.backend import Backend
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format
from forge_client.cli.show.resources import resources
from forge_client.cli.show.waiting import wait_and_show
from forge_client.errors import ClientError
from forge_client.project.bundle import Listing, scan
from forge_client.project.environment.notebook import is_notebook
from forge_client.project.environment.packages import RUNNERS, WithPackages
from forge_client.project.forge_toml import Project, naming_the_file
from forge_client.project.image_tar import ImageTar
from forge_client.project.notices import notices
from forge_client.project.request import Request
from forge_client.project.submission import (
    LIMIT,
    Uploaded,
    specs,
    upload,
    upload_images,
    with_images,
    with_packages,
)
from forge_client.settings import Settings


def show_submitted(backend: Backend, job_id: int, form: Format, *, wait: bool) -> None:
    """Tell of a job that was submitted just now, and print its id; or follow it to its end.

    Raises:
        typer.Exit: with the code for how it ended.
    """
    status = _submitted(backend, job_id)
    tell_job(status)
    tell_nobody(backend, job_id)
    if wait:
        raise typer.Exit(wait_and_show(backend, job_id, form))
    output.show_one(status, form, lambda: print(job_id))  # noqa: T201 - the data


def _submitted(backend: Backend, job_id: int) -> JobDetail:
    try:
        return backend.job(job_id)
    except ClientError as error:
        # Without the id, the user would submit the job again.
        error.message = f"job {job_id} is submitted, but then {error.message}"
        raise


def send(
    backend: Backend,
    settings: Settings,
    project: Project,
    requests: Sequence[Request],
    folder: Path | None,
) -> list[int]:
    """Submit jobs in one call and return their ids; without a folder, they have no code.

    Warns if no online worker can run the first of them.

    Raises:
        ClientError: the folder or a job is invalid, or nothing answers.
    """
    ids = backend.submit(uploaded(backend, settings, project, requests, folder))
    # One check for all of them: jobs of one call usually need the same resources.
    tell_nobody(backend, ids[0])
    return ids


def uploaded(
    backend: Backend,
    settings: Settings,
    project: Project,
    requests: Sequence[Request],
    folder: Path | None,
) -> list[dict[str, Any]]:
    """Have the queue check jobs, upload their files, and return them as it takes them.

    Raises:
        ClientError: as for `send`.
    """
    requests, images = with_images(requests, bar=narration.transfer)
    listing = scan(folder, include=project.include) if folder else None
    if listing:
        tell_left_out(listing, requests)
    whole = with_packages(requests, listing) if listing else None
    requests = whole.requests if whole else requests
    wanted = specs(requests, owner=settings.job_owner, folder=folder or Path())
    if whole is None:
        upload_images(backend, images, bar=narration.transfer)
    else:
        tell_environment(whole)
        with naming_the_file(folder, requests[0]):
            backend.check(wanted)
        most = project.limit or LIMIT
        stored = upload(backend, whole.listing, limit=most, bar=narration.transfer)
        tell(stored)
        tell_images(upload_images(backend, images, bar=narration.transfer))
        wanted = [{**spec, **whole.shown(spec), **stored.fields} for spec in wanted]
    return wanted


def tell_left_out(listing: Listing, requests: Sequence[Request]) -> None:
    """Report what a bundle leaves out that its jobs may need."""
    words = dict.fromkeys(word for one in requests for word in one.command or [])
    for said in notices(listing, words):
        narration.say(said, style="yellow")


def tell_command(request: Request, listing: Listing) -> None:
    """Warn of a command that names no program: a file of the project, or a whole line as a word."""
    program, *words = request.command or [""]
    if " " in program.strip() and not words:
        narration.say(
            f"{program!r} is one word, the name of a program: write the words separately,"
            f" -- {program}",
            style="yellow",
        )
    # A launcher and a notebook's runner take the file.
    elif request.launcher or is_notebook(request.command):
        return
    elif "/" not in program and program in {entry.name for entry in listing.files}:
        runner = RUNNERS.get(Path(program).suffix)
        rest = shlex.join([runner, program, *words] if runner else [f"./{program}", *words])
        narration.say(
            f"{program} is a file of the project, not a program: did you mean -- {rest}?"
            + " It is run so." * bool(runner),
            style="yellow",
        )


def tell_environment(whole: WithPackages) -> None:
    """Say which packages the jobs install, and why these."""
    for said in whole.said:
        narration.say(f"packages: {said}")
    if whole.absent:
        narration.say(
            f"no index has {names_text(whole.absent, SHOWN)}: unless a worker's index does, the job"
            " will fail; check the name",
            style="yellow",
        )


def tell(stored: Uploaded) -> None:
    """Say what was packed, and whether an upload was necessary."""
    bundle = stored.bundle
    sizes = f"{size_text(bundle.unpacked_size)} → {size_text(bundle.size)}"
    some = f"{size_text(stored.sent)} uploaded" if stored.sent else "already there"
    done = "uploaded" if stored.sent == bundle.size else some
    narration.say(f"packed {counted(bundle.files, 'file')}, {sizes}, {done}")
    if stored.left_out:
        narration.say(f"the patch of uncommitted changes leaves out {names_text(stored.left_out)}")


def tell_images(stored: Mapping[ImageTar, bool]) -> None:
    """Say which images the jobs use, and whether uploads were necessary."""
    for image, anew in stored.items():
        done = "uploaded" if anew else "already there"
        narration.say(f"image {image.path.name}, {size_text(image.size)}, {done}")


SHOWN = 5
# Limits that only an admin ends.
BY_AN_ADMIN = {"approval", "queue_paused", "owner_paused"}
# Messages for the outlooks in `explain` of a job that no worker takes.
NOBODY = {
    "no_worker": "no online worker can run it",
    "unfit": "no online worker can run it",
    "unavailable": "no worker that can run it is taking jobs now",
}


def tell_job(job: JobDetail) -> None:
    """Say that a job was submitted, and with which resources."""
    # If a job that it needs has failed, it is cancelled at once.
    said = (job.detail if job.state == "cancelled" else None) or resources(job)
    narration.say(f"job {job.job_id} {job.name!r} is {job.state}{f': {said}' if said else ''}")


def tell_nobody(backend: Backend, job_id: int) -> None:
    """Warn if a job waits for an admin, or no online worker can run it, as in `forge explain`."""
    try:
        found = backend.explain(job_id, workers=0)
    except ClientError:
        return  # it is submitted, whatever becomes of this look
    for limit in found.limits:
        if limit.code in BY_AN_ADMIN:
            narration.say(limit.text, style="yellow")
    said = NOBODY.get(found.outlook)
    if said is None:
        return
    if found.nodes > 1 or found.text.startswith("no online worker"):
        said = found.text
    advice = f": {found.remedies[0].text}" if found.remedies else ""
    narration.say(f"{said}{advice} (details: `forge explain {job_id}`)", style="yellow")

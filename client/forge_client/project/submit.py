"""One submission: pack a folder, choose packages, ask the queue, upload, return the jobs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_schema.model.quantities import counted, names_text, size_text

from forge_client.errors import ClientError, InvalidInput, Misconfigured
from forge_client.project import FILE, IMAGE_WAYS, no_command
from forge_client.project.bundle import Listing, scan
from forge_client.project.environment.packages import RUNNERS, WithPackages
from forge_client.project.environment.tools.run import is_notebook
from forge_client.project.listing import LeftOut
from forge_client.project.notices import Missed, missing, notices, remarks
from forge_client.project.submission import (
    LIMIT,
    Bar,
    Uploaded,
    configured,
    no_bar,
    specs,
    upload,
    upload_images,
    with_images,
    with_packages,
)
from forge_client.uploads import ImageTar

if TYPE_CHECKING:
    from forge_schema.model.job import Template

    from forge_client.backend import Backend
    from forge_client.project.forge_toml import Project
    from forge_client.project.request import Request

SHOWN = 5
# Of files that programs run.
SCRIPTS = {*RUNNERS, ".ipynb"}
FILE_NAME = re.compile(r"[\w.-][\w./-]*")


def _silent(_text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Narrator:
    """What tells people about a submission; by default, nothing does."""

    say: Callable[[str], None] = _silent
    warn: Callable[[str], None] = _silent
    missing: Callable[[str], None] = _silent
    bar: Bar = no_bar


SILENT = Narrator()


@dataclass(frozen=True)
class Parcel:
    """The files of jobs, from a folder; `limit` is the largest total size of them in bytes.

    With a `config`, the fields of that template lie below those of the jobs.
    """

    folder: Path
    listing: Listing
    limit: int = LIMIT
    config: str | None = None


@dataclass(frozen=True)
class PreparedSubmit:
    """Jobs and their files, read and not yet sent.

    Without a parcel, they have no files. With a template, which only the queue knows, `whole`
    is None: packages are chosen later, and the `specs` are only the fields of the jobs themselves.
    """

    requests: Sequence[Request]
    images: Sequence[ImageTar]
    owner: str | None
    narrator: Narrator
    specs: Sequence[dict[str, Any]]
    parcel: Parcel | None = None
    whole: WithPackages | None = None

    @property
    def listing(self) -> Listing:
        """The files, which are none without a parcel."""
        return self.parcel.listing if self.parcel else Listing(Path(), ())

    def shown(self) -> list[dict[str, Any]]:
        """Return the jobs with what people are shown of them, and the queue need not check."""
        shown = self.whole.shown if self.whole else lambda _spec: {}
        return [{**spec, **shown(spec)} for spec in self.specs]


@dataclass(frozen=True)
class PlannedFile:
    """A file that a job would have, at a path in its folder; a link has its text."""

    path: str
    bytes: int
    link: str | None = None


@dataclass(frozen=True)
class DryRun:
    """What would be submitted: the jobs as the queue takes them, and the files they would have.

    `left_out` is what is never packed unasked, and `ignored` what ignore files leave out of data
    and code. `packages` says what the jobs install, and `remarks` why the first would only wait.
    """

    jobs: tuple[dict[str, Any], ...]
    files: tuple[PlannedFile, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    ignored: tuple[Missed, ...] = ()
    packages: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the files, before compression."""
        return sum(file.bytes for file in self.files)


def packed(
    project: Project,
    folder: Path,
    requests: Sequence[Request],
    *,
    limit: int | None = None,
    config: str | None = None,
    narrator: Narrator = SILENT,
) -> Parcel:
    """List a project's folder, and tell what is left out that the jobs may need."""
    listing = scan(folder, include=project.include)
    words = dict.fromkeys(word for request in requests for word in request.command or [])
    for text in notices(listing, words):
        narrator.missing(text)
    return Parcel(folder, listing, limit or project.limit or LIMIT, config)


def prepared(
    requests: Sequence[Request],
    parcel: Parcel | None,
    *,
    owner: str | None,
    narrator: Narrator = SILENT,
) -> PreparedSubmit:
    """Complete jobs as far as it needs no queue.

    Raises:
        ClientError: a job is invalid, or its files are.
    """
    requests, images = with_images(requests, bar=narrator.bar)
    if parcel is None:
        whole = specs(requests, owner=owner, folder=Path())
        return PreparedSubmit(requests, images, owner, narrator, whole)
    _tell_command(requests[0], parcel.listing, narrator)
    fields = [{"config_name": parcel.config, **request.fields()} for request in requests]
    ready = PreparedSubmit(requests, images, owner, narrator, fields, parcel)
    if parcel.config:
        return ready
    if not all(request.command for request in requests):
        raise no_command()
    return _with_packages(ready, parcel)


def checked(backend: Backend, ready: PreparedSubmit) -> PreparedSubmit:
    """Have the queue check jobs, and return them with the fields of their template, if any.

    Raises:
        ClientError: the queue refuses a job, or nothing answers.
    """
    parcel = ready.parcel
    if parcel and parcel.config:
        ready = _with_packages(ready, parcel, backend.template(parcel.config))
    try:
        backend.check(ready.specs)
    except ClientError as error:
        if error.code == "spec_invalid":
            _tell_place(error, parcel.folder if parcel else Path(), ready.requests)
        raise
    tell_packages(ready)
    return ready


def _tell_place(error: ClientError, folder: Path, requests: Sequence[Request]) -> None:
    """Raise an error that says more of a wrong value, if it is in forge.toml or known here."""
    requests = [request.whole() for request in requests]
    if (folder / FILE).is_file():
        from forge_client.project.forge_toml import naming_the_file  # noqa: PLC0415 - for models

        with naming_the_file(folder, requests):
            raise error


def planned(backend: Backend, ready: PreparedSubmit) -> DryRun:
    """Have the queue check jobs, and return what would be submitted. Nothing is stored.

    Raises:
        ClientError: the queue refuses a job, or nothing answers.
    """
    ready = checked(backend, ready)
    name = ready.parcel and ready.parcel.config
    plan = unchecked(ready, backend.template(name).spec if name else {})
    return replace(plan, remarks=_foreseen(backend, ready.specs[0]))


def planned_again(backend: Backend, spec: dict[str, Any]) -> DryRun:
    """Have the queue check a job whose files it has, and return what would be submitted."""
    backend.check([spec])
    return DryRun((spec,), remarks=_foreseen(backend, spec))


def _foreseen(backend: Backend, spec: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return tuple(remarks(backend.foresee([spec])))
    except Misconfigured:
        return ()  # The server is older.


def unchecked(ready: PreparedSubmit, template: Mapping[str, Any]) -> DryRun:
    """Return what would be submitted, with the fields of a template below those of the jobs."""
    from forge_schema.service.submitting import merged  # noqa: PLC0415 - only for this

    listing = ready.listing
    # Folders are seen by what is in them.
    packed = (entry for entry in listing.entries if not entry.folder or entry.link)
    return DryRun(
        tuple(merged(template, job) for job in ready.shown()),
        tuple(PlannedFile(entry.name, entry.size, entry.link) for entry in packed),
        listing.left_out,
        tuple(missing(listing)),
        tuple(ready.whole.notes) if ready.whole else (),
    )


def uploaded(backend: Backend, ready: PreparedSubmit) -> list[dict[str, Any]]:
    """Have the queue check jobs, upload what they need, and return them as it takes them.

    Raises:
        ClientError: the queue refuses a job, or nothing answers.
    """
    parcel, bar = ready.parcel, ready.narrator.bar
    if parcel is None:
        upload_images(backend, ready.images, bar=bar)
        return ready.shown()
    ready = checked(backend, ready)
    stored = upload(backend, ready.listing, limit=parcel.limit, bar=bar)
    _tell_bundle(stored, ready.narrator)
    for image, anew in upload_images(backend, ready.images, bar=bar).items():
        done = "uploaded" if anew else "already there"
        ready.narrator.say(f"image {image.path.name}, {size_text(image.size)}, {done}")
    return [{**spec, **stored.fields} for spec in ready.shown()]


def _with_packages(
    ready: PreparedSubmit, parcel: Parcel, config: Template | None = None
) -> PreparedSubmit:
    """Choose what the jobs install, and bring them into the queue's form."""
    owner, folder = ready.owner, parcel.folder
    try:
        whole = with_packages(ready.requests, parcel.listing, config.spec if config else None)
    except ClientError as error:
        if error.code == "requirements_invalid":
            _tell_place(error, folder, ready.requests)
        raise
    if config is None:
        made = specs(whole.requests, owner=owner, folder=folder)
    else:
        made = [
            configured(request, config, owner=owner, folder=folder) for request in whole.requests
        ]
    return replace(ready, specs=made, whole=whole, parcel=replace(parcel, listing=whole.listing))


def tell_packages(ready: PreparedSubmit) -> None:
    """Say what the jobs install, and warn of what no index has."""
    if (whole := ready.whole) is None:
        return
    for text in whole.notes:
        ready.narrator.say(f"packages: {text}")
    if whole.absent:
        ready.narrator.warn(
            f"no index has {names_text(whole.absent, SHOWN)}: unless a worker's index does, the job"
            " will fail; check the name"
        )


def _tell_command(request: Request, listing: Listing, narrator: Narrator) -> None:
    """Warn of a command that names no program: a file of the project, or a whole line as a word."""
    if not listing.files:
        narrator.warn(f"{listing.root.resolve().name} has no files that are packed")
    program, *words = request.command or [""]
    if " " in program.strip() and not words:
        narrator.warn(
            f"{program!r} is one word, the name of a program: write a command as one text, or each"
            " of its words as one of the list"
        )
    elif absent := _absent(request, listing):
        # No job writes a notebook that it then runs.
        if is_notebook(request.command) and not _has_others(request):
            raise InvalidInput(absent)
        narrator.warn(absent)
    # A launcher and a notebook's runner take the file; a handler is no program.
    elif request.launcher or request.handler or is_notebook(request.command):
        return
    elif "/" not in program and program in {entry.name for entry in listing.files}:
        runner = RUNNERS.get(Path(program).suffix)
        rest = shlex.join([runner, program, *words] if runner else [f"./{program}", *words])
        narrator.warn(
            f"{program} is a file of the project, not a program: "
            + (f"it is run as {rest}" if runner else f"did you mean -- {rest}?")
        )


def _has_others(request: Request) -> bool:
    """Tell whether a job has other files than these: of an image, or of another's checkpoint."""
    ways = (*(getattr(request, way) for way in IMAGE_WAYS), request.from_checkpoint)
    return any(ways)


def _absent(request: Request, listing: Listing) -> str:
    """Return a sentence about a script that the command runs and the files have not, if any."""
    words_before = (request.command or [])[:3]
    words = [word for word in request.command or [] if not word.startswith("-")]
    script = next((word for word in words[:2] if Path(word).suffix in SCRIPTS), "")
    names = {entry.name for entry in listing.entries}
    name = os.path.normpath(script)
    if not FILE_NAME.fullmatch(script) or name.startswith("..") or {"-c", "-m"} & {*words_before}:
        return ""
    # What is left out is there, and another sentence tells of it.
    if name in names or (listing.root / name).exists():
        return ""
    from difflib import get_close_matches  # noqa: PLC0415 - only for this

    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{script} is not among the files of {listing.root.resolve().name}{meant}"


def _tell_bundle(stored: Uploaded, narrator: Narrator) -> None:
    """Say what was packed, and whether an upload was necessary."""
    bundle = stored.bundle
    sizes = f"{size_text(bundle.unpacked_size)} → {size_text(bundle.size)}"
    some = f"{size_text(stored.sent)} uploaded" if stored.sent else "already there"
    done = "uploaded" if stored.sent == bundle.size else some
    narrator.say(f"packed {counted(bundle.files, 'file')}, {sizes}, {done}")
    if stored.left_out:
        names = names_text(stored.left_out)
        narrator.say(f"the patch of uncommitted changes leaves out {names}")

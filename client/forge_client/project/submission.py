"""Turn a folder and requests into jobs: choose packages, pack, upload, submit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_schema.model.bundles import SEGMENT_BYTES
from forge_schema.model.reading import is_handle
from forge_schema.model.states import Launcher

from forge_client.errors import ClientError, InvalidInput
from forge_client.project import IMAGE_WAYS, no_command
from forge_client.project.bundle import Listing, pack, pack_listing, packed_before, remember
from forge_client.project.environment.packages import WithPackages, choose_packages
from forge_client.project.git.changes import UNCOMMITTED, git_state
from forge_client.project.image_tar import DIGEST
from forge_client.project.image_tar import read as read_image
from forge_client.uploads import Bundle, ImageTar, Progress

if TYPE_CHECKING:
    from forge_schema.model.job import Template

    from forge_client.backend import Backend
    from forge_client.project.request import Request

LIMIT = 2 << 30
# What a job on a single machine cannot have.
OF_SEVERAL_MACHINES = frozenset({"max_nodes", "same", "mixed"})
# What runs the tests of a project.
PYTEST = "python3 -m pytest"

Bar = Callable[[str, int], AbstractContextManager[Progress]]
"""Makes a progress bar from a description and the number of bytes."""


def no_bar(_what: str, _total: int) -> AbstractContextManager[Progress]:
    """Show nothing."""
    return nullcontext(lambda _count: None)


@dataclass(frozen=True)
class Uploaded:
    """A bundle in the store, of which `sent` bytes were not there before, and its git state.

    `left_out` is what the patch of the changes that were not committed does not have.
    """

    bundle: Bundle
    sent: int
    git: Mapping[str, Any] | None = None
    left_out: Sequence[str] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a job that has this code."""
        return {"bundle_digest": self.bundle.digest, **({"git": self.git} if self.git else {})}


def upload(
    backend: Backend, listing: Listing, *, limit: int = LIMIT, bar: Bar = no_bar
) -> Uploaded:
    """Pack the result of `scan`, and upload what the store does not have of it and of its git diff.

    Args:
        backend: the backend to store it with.
        listing: the files to pack.
        limit: the largest total size of the unpacked files, in bytes.
        bar: makes the progress bars.

    Raises:
        ClientError: the folder cannot be packed, or the store refuses it.
    """
    stored = _upload_files(backend, listing, limit, bar)
    state = git_state(listing)
    if state is None:
        return stored
    git, diff, left_out = state
    more = {"diff": _upload_diff(backend, diff)} if diff else {}
    return replace(stored, git={**git, **more}, left_out=left_out)


def _upload_diff(backend: Backend, diff: bytes) -> str:
    """Store a diff as a bundle of one file, and return its digest."""
    with tempfile.TemporaryDirectory(prefix="forge-diff-") as folder:
        content = Path(folder) / "content"
        content.mkdir()
        (content / UNCOMMITTED).write_bytes(diff)
        bundle = pack(content, Path(folder) / "diff.tar.zst", limit_bytes=len(diff))
        if not backend.has_bundle(bundle):
            backend.upload_bundle(bundle)
    return bundle.digest


def _upload_files(backend: Backend, listing: Listing, limit: int, bar: Bar) -> Uploaded:
    known = packed_before(listing)
    if known and known.unpacked_size <= limit and not _missing(backend, known):
        return Uploaded(known, 0)
    with tempfile.TemporaryDirectory(prefix="forge-bundle-") as folder:
        with bar("packing", listing.total_bytes) as progress:
            bundle = _packed(listing, Path(folder), limit, progress)
        remember(listing, bundle)
        if missing := _missing(backend, bundle):
            store = backend.upload_segments if bundle.segments else backend.upload_bundle
            with bar("uploading", missing) as progress:
                store(bundle, progress)
        return Uploaded(bundle, missing)


def _packed(listing: Listing, folder: Path, limit: int, progress: Progress) -> Bundle:
    try:
        if listing.total_bytes > SEGMENT_BYTES:
            # Its models, and below those of a request, take a while to import.
            from forge_client.project.segments import pack_segments  # noqa: PLC0415

            return pack_segments(listing, folder, limit_bytes=limit, progress=progress)
        out = folder / "bundle.tar.zst"
        return pack_listing(listing, out, limit_bytes=limit, progress=progress)
    except OSError as error:
        raise ClientError(
            f"the folder cannot be packed in {folder.parent}: {error.strerror}",
            hint="make room there, or name another folder: TMPDIR=/path forge submit …",
            code="file_unwritable",
        ) from error


def _missing(backend: Backend, bundle: Bundle) -> int:
    """Return how many bytes of a bundle the store does not have."""
    if bundle.segments:
        return backend.missing_bytes(bundle)
    return 0 if backend.has_bundle(bundle) else bundle.size


def with_images(
    requests: Sequence[Request], *, bar: Bar = no_bar
) -> tuple[list[Request], list[ImageTar]]:
    """Return requests with each image tar replaced by its SHA-256, and the tars.

    Raises:
        ClientError: a file is not a saved image.
    """
    files = {request.image_tar for request in requests if request.image_tar}
    read = {
        file: read_image(Path(file), bar) for file in sorted(files) if not DIGEST.fullmatch(file)
    }
    return [_with_image(request, read) for request in requests], list(read.values())


def _with_image(request: Request, read: Mapping[str, ImageTar]) -> Request:
    image = read.get(request.image_tar or "")
    return request.model_copy(update={"image_tar": image.digest}) if image else request


def upload_images(
    backend: Backend, images: Sequence[ImageTar], *, bar: Bar = no_bar
) -> dict[ImageTar, bool]:
    """Store saved images; return for each whether it was uploaded now.

    Raises:
        ClientError: the store refuses an image.
    """
    return {image: _upload_image(backend, image, bar) for image in images}


def _upload_image(backend: Backend, image: ImageTar, bar: Bar) -> bool:
    if backend.has_image(image):
        return False
    with bar("uploading the image", image.size) as progress:
        backend.upload_image(image, progress)
    return True


def specs(requests: Sequence[Request], *, owner: str | None, folder: Path) -> list[dict[str, Any]]:
    """Return the jobs in the queue's form; a job without a name or experiment has its folder's.

    Without an owner, the server uses that of the API key.

    Raises:
        ClientError: a request is incomplete.
    """
    name = called(folder)
    return [request.spec(owner=owner, name=name) for request in requests]


def configured(
    request: Request, config: Template, *, owner: str | None, folder: Path
) -> dict[str, Any]:
    """Return a job with a template's fields as defaults for the request's.

    Raises:
        ClientError: neither has a command.
    """
    fields = request.fields()
    if not (request.command or config.spec.get("command")):
        raise no_command()
    if not (request.name or config.spec.get("name")):
        fields["name"] = called(folder)
    if not (request.experiment or config.spec.get("experiment")):
        fields["experiment"] = called(folder)
    if request.requirements is False:
        fields["requirements"] = None
    return {"config_name": config.name, **({"owner": owner} if owner else {}), **fields}


def repeated(job: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's fields, in the queue's form, with some changed; its code stays the same.

    Raises:
        ClientError: a change is unknown or invalid.
    """
    from forge_client.project.request import Request  # noqa: PLC0415 - as above

    changed = Request().changed(changes)
    if changed.extras or changed.groups:
        raise InvalidInput(
            "a job that runs again has the packages that were locked for it, without more extras"
            " or groups",
            hint="submit its folder again with them; `forge code JOB` fetches it",
        )
    fields = changed.fields()
    # An image given here replaces any other.
    replaced = IMAGE_WAYS if IMAGE_WAYS & fields.keys() else set()
    if "nodes" in fields:
        replaced |= {"max_nodes"} if fields["nodes"] > 1 else _lost_on_one_machine(job)
    kept = {name: value for name, value in job.items() if name not in replaced}
    tables: dict[str, Any] = {
        name: {**kept.get(name, {}), **fields[name]}
        for name in ("labels", "env", "inputs", "resources", "tuning", "stall")
        if fields.get(name)
    }
    if _gets_gpus(kept.get("resources", {}), fields.get("resources", {})):
        tables["resources"].pop("cpus")
    if fields.get("secrets"):
        tables["secrets"] = list(dict.fromkeys([*kept.get("secrets", ()), *fields["secrets"]]))
    return {**kept, **{name: value for name, value in fields.items() if value != {}}, **tables}


def _gets_gpus(had: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a job gets GPUs, and so a share of CPUs instead of the one it had unasked."""
    unasked = had.get("cpus") == 1 and not had.get("gpus")
    return unasked and bool(given.get("gpus")) and "cpus" not in given


def _lost_on_one_machine(job: Mapping[str, Any]) -> frozenset[str]:
    alone = Launcher(job.get("launcher") or Launcher.NONE).starts_alone
    return OF_SEVERAL_MACHINES if alone else OF_SEVERAL_MACHINES | {"launcher"}


def called(folder: Path) -> str:
    """Return the name of the jobs of a folder."""
    name = folder.resolve().name or "job"
    # A folder `2026` would be taken for an id.
    return f"job-{name}" if is_handle(name) else name


def with_packages(
    requests: Sequence[Request], listing: Listing, below: Mapping[str, Any] | None = None
) -> WithPackages:
    """Return requests that name what they install, and their files with the lists of it.

    Raises:
        ClientError: a file is where the checkpoint folder is to be, or a list of packages cannot be
            used.
    """
    for request in requests:
        _check_folder(request.checkpoint_dir, listing)
        _check_dockerfile(request, listing, below or {})
    return choose_packages(requests, listing, below)


def _check_dockerfile(request: Request, listing: Listing, below: Mapping[str, Any]) -> None:
    named = any(getattr(request, way) for way in IMAGE_WAYS)
    path = request.dockerfile if named else below.get("dockerfile")
    if path and not any(entry.name == path for entry in listing.files):
        raise InvalidInput(
            f"the Dockerfile {path!r} is not among the project's files",
            hint="check the path, or upload it with --include if .gitignore leaves it out",
        )


def _check_folder(path: str | None, listing: Listing) -> None:
    for entry in listing.entries:
        if entry.folder and entry.link is None:
            continue
        if path and f"{path}/".startswith(f"{entry.name}/"):
            kind = "file" if entry.link is None else "link"
            raise InvalidInput(
                f"{entry.name!r} is a {kind} of the project,"
                f" so {path!r} cannot be the checkpoint folder",
                hint="name a folder with --checkpoint-dir, which need not exist yet",
            )

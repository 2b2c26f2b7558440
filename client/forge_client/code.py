"""Fetch the code of a job: its bundle, unpacked, and its uncommitted changes."""

import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from forge_schema import code
from forge_schema.code import BundleRefused, TarStream
from forge_schema.model.bundles import MOST_LIST_BYTES, WRITTEN, name_fault
from forge_schema.model.job import JobDetail
from forge_schema.model.stored import segments_in
from forge_schema.trail import input_texts

from forge_client.backend import Backend
from forge_client.downloads import at_once, whole_folder
from forge_client.errors import ClientError
from forge_client.plain.unpacking import corrupt
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.git.changes import UNCOMMITTED

Files = Mapping[str, Callable[[], bytes]]
"""The content of files by their names; that of a link says where it leads."""


def fetch(backend: Backend, job: JobDetail, folder: Path) -> None:
    """Unpack a job's code into a folder that is empty or does not exist.

    Raises:
        ClientError: the job has no code, the folder is not empty, or an object is corrupt.
    """
    if job.bundle_digest is None:
        raise ClientError(
            f"job {job.job_id} has no code: it was submitted without a folder",
            hint=f"`forge show {job.job_id}` shows its command",
            code="no_code",
        )
    if folder.exists() and any(folder.iterdir()):
        raise ClientError(
            f"{folder} is not empty", hint="name another folder", code="folder_not_empty"
        )
    with whole_folder(folder) as whole:
        _unpack(backend, job.job_id, job.bundle_digest, whole)


def uncommitted(backend: Backend, job: JobDetail) -> bytes:
    """Return the diff of the changes that were not committed when a job was submitted.

    It has the lines of files as they are: with Windows' line ends, and in any encoding.

    Raises:
        ClientError: an object is corrupt.
    """
    digest = (job.spec.get("git") or {}).get("diff")
    if not digest:
        return b""
    with tempfile.TemporaryDirectory(prefix="forge-diff-") as folder:
        _unpack(backend, job.job_id, digest, Path(folder))
        file = Path(folder) / UNCOMMITTED
        return file.read_bytes() if file.exists() else b""


def listed_packages(backend: Backend, job: JobDetail) -> str:
    """Return the list of the packages that a job installs, "" if it installs none.

    Raises:
        ClientError: as `fetch`.
    """
    listed = job.spec.get("requirements")
    if not listed:
        return ""
    with tempfile.TemporaryDirectory(prefix="forge-code-") as kept:
        fetch(backend, job, Path(kept))
        file = Path(kept, listed)
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def differences(backend: Backend, job: JobDetail, other: JobDetail | Path) -> Iterator[str]:
    """Yield the lines of a unified diff of a job's code and that of another job, or a project.

    First come the inputs of two jobs, as far as they differ.

    Raises:
        ClientError: as `fetch`, or the project's forge.toml is invalid.
    """
    if not isinstance(other, Path):
        both = (_inputs(backend, job_id) for job_id in (job, other))
        yield from code.differences("inputs", *both)
    with ExitStack() as stack:
        before, after = (
            _project(side) if isinstance(side, Path) else stack.enter_context(_files(backend, side))
            for side in (job, other)
        )
        # A folder has no lock before it is submitted.
        skipped = WRITTEN if isinstance(other, Path) else ()
        names = (name for name in {*before, *after} if not name.startswith(skipped))
        for name in code.in_order(names):
            was, is_now = (files[name]() if name in files else None for files in (before, after))
            yield from code.differences(name, was, is_now)


def _inputs(backend: Backend, job: JobDetail) -> bytes | None:
    if not job.spec.get("inputs"):
        return None
    lines = input_texts(job.spec, backend.events(job.job_id)).values()
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _files(backend: Backend, job: JobDetail) -> Iterator[Files]:
    """Yield the files of a job's code by name, unpacked for a while; raises as `fetch`."""
    with tempfile.TemporaryDirectory(prefix="forge-code-") as kept:
        folder = Path(kept)
        fetch(backend, job, folder)
        yield {
            path.relative_to(folder).as_posix(): _content(
                path, path.readlink().as_posix() if path.is_symlink() else None
            )
            for path in folder.rglob("*")
            if path.is_symlink() or path.is_file()
        }


def _project(folder: Path) -> Files:
    """Return the files that a submit of a folder would upload."""
    listing = scan(folder, include=Project.read(folder).include)
    kept = (entry for entry in listing.entries if entry.link is not None or not entry.folder)
    return {entry.name: _content(entry.path, entry.link) for entry in kept}


def _content(path: Path, link: str | None) -> Callable[[], bytes]:
    if link is None:
        return path.read_bytes
    return partial(code.link_content, link)


def _unpack(backend: Backend, job_id: int, digest: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="forge-fetch-") as kept:
        files = _fetched(backend, job_id, digest, Path(kept))
        try:
            with closing(_opened(files)) as opened:
                _write(TarStream(opened), folder)
        except BundleRefused as error:
            raise corrupt(f"the code of job {job_id}") from error


def _write(stream: TarStream, folder: Path) -> None:
    """Write the entries of a bundle into a folder of our own, which none of them leaves."""
    for entry in stream.headers():
        if fault := name_fault(entry.name):
            raise BundleRefused(f"{entry.name!r} {fault}")
        path = folder / entry.name
        # The links are last, and none of them is a folder for another.
        if path.parent.resolve() != (folder.resolve() / entry.name).parent:
            raise BundleRefused(f"{entry.name!r} lies behind a link")
        (path if entry.folder else path.parent).mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            path.symlink_to(entry.link)
        elif not entry.folder:
            with path.open("wb") as file:
                file.writelines(stream.content(entry.size))
            path.chmod(0o755 if entry.executable else 0o644)


def _fetched(backend: Backend, job_id: int, digest: str, folder: Path) -> Sequence[Path]:
    whole = folder / digest
    backend.fetch_code(job_id, digest, whole)
    small = whole.stat().st_size <= MOST_LIST_BYTES
    segments = segments_in(whole.read_bytes(), digest) if small else ()
    if not segments:
        return [whole]
    paths = {segment.sha256: folder / segment.sha256 for segment in segments}
    at_once(lambda item: backend.fetch_code(job_id, item[0], item[1]), paths.items())
    return [paths[item.sha256] for item in segments]


def _opened(paths: Iterable[Path]) -> Generator[IO[bytes], None, None]:
    # One after the other: there may be more than a process may open.
    for path in paths:
        with path.open("rb") as file:
            yield file

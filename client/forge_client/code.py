"""Fetch the code of a job: its bundle, unpacked, and its uncommitted changes."""

import difflib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard
from forge_schema.model.bundles import MOST_LIST_BYTES, name_fault, segments_in
from forge_schema.model.job import JobDetail

from forge_client.backend import Backend
from forge_client.downloads import at_once, corrupt, whole_folder
from forge_client.errors import ClientError
from forge_client.project.bundle import scan
from forge_client.project.environment.locks import DIGEST
from forge_client.project.environment.settled import WRITTEN
from forge_client.project.forge_toml import Project
from forge_client.project.git import UNCOMMITTED

# Pythons before 3.11.4 have no filters, as Debian's.
FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


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


def uncommitted(backend: Backend, job: JobDetail) -> str:
    """Return the diff of the changes that were not committed when a job was submitted.

    Raises:
        ClientError: an object is corrupt.
    """
    digest = (job.spec.get("git") or {}).get("diff")
    if not digest:
        return ""
    with tempfile.TemporaryDirectory(prefix="forge-diff-") as folder:
        _unpack(backend, job.job_id, digest, Path(folder))
        file = Path(folder) / UNCOMMITTED
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def listed_packages(backend: Backend, job: JobDetail) -> str:
    """Return the list of the packages that a job installs, "" if it installs none.

    Raises:
        ClientError: as `fetch`.
    """
    listed = job.spec.get("requirements")
    if not listed:
        return ""
    with _files(backend, job) as files:
        file = files.get(listed)
        return file.read_text(encoding="utf-8", errors="replace") if file else ""


def differences(backend: Backend, job: JobDetail, other: JobDetail | Path) -> Iterator[str]:
    """Yield the lines of a unified diff of a job's code and that of another job, or a project.

    Raises:
        ClientError: as `fetch`, or the project's forge.toml is invalid.
    """
    with ExitStack() as stack:
        before, after = (
            _project(one) if isinstance(one, Path) else stack.enter_context(_files(backend, one))
            for one in (job, other)
        )
        # A folder has no lock before it is submitted.
        skipped = WRITTEN if isinstance(other, Path) else ()
        names = {name for name in {*before, *after} if not name.startswith(skipped)}
        for name in sorted(names, key=lambda name: (name.startswith(WRITTEN), name)):
            yield from _difference(name, before.get(name), after.get(name))


def _difference(name: str, before: Path | None, after: Path | None) -> Iterator[str]:
    first, second = (path.read_bytes() if path else b"" for path in (before, after))
    if first == second and before and after:
        return
    try:
        old, new = _lines(name, first), _lines(name, second)
    except UnicodeDecodeError:
        yield f"Binary file {name} differs"
        return
    was = f"a/{name}" if before else "/dev/null"
    is_now = f"b/{name}" if after else "/dev/null"
    yield from difflib.unified_diff(old, new, was, is_now, lineterm="")


def _lines(name: str, content: bytes) -> list[str]:
    """Return the lines of a file; those of a lock without the hashes, which bury its versions."""
    text = content.decode()
    return (DIGEST.sub("", text) if name.startswith(WRITTEN) else text).splitlines()


@contextmanager
def _files(backend: Backend, job: JobDetail) -> Iterator[dict[str, Path]]:
    """Yield the files of a job's code by name, unpacked for a while; raises as `fetch`."""
    with tempfile.TemporaryDirectory(prefix="forge-code-") as kept:
        folder = Path(kept)
        fetch(backend, job, folder)
        files = (path for path in folder.rglob("*") if path.is_file())
        yield {path.relative_to(folder).as_posix(): path for path in files}


def _project(folder: Path) -> dict[str, Path]:
    """Return the files that a submit of a folder would upload."""
    listing = scan(folder, include=Project.read(folder).include)
    return {entry.name: entry.path for entry in listing.files}


def _unpack(backend: Backend, job_id: int, digest: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="forge-fetch-") as kept:
        files = _fetched(backend, job_id, digest, Path(kept))
        try:
            with (
                _Joined(files) as packed,
                zstandard.ZstdDecompressor().stream_reader(
                    packed,  # type: ignore[arg-type]  # only read() is used
                    read_across_frames=True,
                ) as data,
                tarfile.open(mode="r|", fileobj=data) as tar,
            ):
                tar.extractall(folder, _sound(tar), **FILTER)  # noqa: S202 - only sound ones
        except (tarfile.TarError, zstandard.ZstdError) as error:
            raise corrupt(f"the code of job {job_id}") from error


def _sound(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of a bundle, none of which leads out of its folder, owns or links.

    Raises:
        tarfile.ReadError: there is one that no bundle has.
    """
    for entry in tar:
        if not (entry.isreg() or entry.isdir()) or name_fault(entry.name):
            raise tarfile.ReadError(f"{entry.name!r} is no file of a bundle")
        entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
        entry.mode = (entry.mode | 0o600) & 0o755
        yield entry


def _fetched(backend: Backend, job_id: int, digest: str, folder: Path) -> Sequence[Path]:
    whole = folder / digest
    backend.fetch_code(job_id, digest, whole)
    small = whole.stat().st_size <= MOST_LIST_BYTES
    segments = segments_in(whole.read_bytes(), digest) if small else ()
    if not segments:
        return [whole]
    paths = {one.sha256: folder / one.sha256 for one in segments}
    at_once(lambda one: backend.fetch_code(job_id, one[0], one[1]), paths.items())
    return [paths[one.sha256] for one in segments]


class _Joined(io.RawIOBase):
    """Files, read one after the other."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = iter(paths)
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def read(self, size: int = -1) -> bytes:
        while True:
            if self._file is not None and (data := self._file.read(size)):
                return data
            path = next(self._paths, None)
            if path is None:
                return b""
            self._stack.close()
            self._file = self._stack.enter_context(path.open("rb"))

    def close(self) -> None:
        self._stack.close()
        super().close()

"""Download stored objects: verify, unpack, and write them completely or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from forge_schema.model.bundles import below_a_link, folded_name, stays_inside
from forge_schema.model.quantities import counted
from forge_schema.model.stored import Artifact, ArtifactChunk, in_chunks

from forge_client.backend import Backend
from forge_client.errors import ClientError
from forge_client.plain.unpacking import OF_ONE_FILE, corrupt
from forge_client.uploads import Progress

# Of a file in chunks, at most: workers make no larger ones.
CHUNK_BYTES = 32 << 20
# How many files, or chunks of a file, are fetched at once.
AT_ONCE = 8

BEGINNING, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

OWN_FAULTS = {
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EFBIG, errno.EINVAL),
    *(errno.EILSEQ, errno.ELOOP),
}
OTHERS = "all others are there, unless something in the folder stood in their way"

T = TypeVar("T")
Page = Callable[[int], list[ArtifactChunk]]
"""Returns some chunks of a file after an offset; none after the last one."""

Fetch = Callable[[ArtifactChunk, Callable[[bytes], object]], None]
"""Passes a chunk's content on, piece by piece."""


@contextmanager
def verified_file(path: Path, artifact: Artifact) -> Iterator[Path]:
    """Yield a file to fill; it is renamed to `path` at the end if it is what the artifact says.

    Raises:
        ClientError: its size or its digest is wrong.
    """
    with _renamed(path) as partial:
        yield partial
        if partial.stat().st_size != artifact.bytes or _sha256(partial) != artifact.sha256:
            raise corrupt(f"the artifact {artifact.path!r}")


@contextmanager
def verified_code(path: Path, digest: str) -> Iterator[Path]:
    """Yield a file to fill with a bundle, or with a list of its segments, as `verified_file`.

    Raises:
        ClientError: the digest is wrong.
    """
    from forge_schema.model.bundles import MOST_LIST_BYTES, list_digest  # noqa: PLC0415 - as above

    with _renamed(path) as partial:
        yield partial
        listed = partial.stat().st_size <= MOST_LIST_BYTES and list_digest(partial.read_bytes())
        if digest not in {_sha256(partial), listed}:
            raise corrupt("the code")


@contextmanager
def _renamed(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill; what is in it appears in `folder` at the end, or not at all."""
    there = folder.is_dir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = (folder if there else folder.parent) / f".{secrets.token_hex(8)}.partial"
    partial.mkdir()
    try:
        yield partial
        if there:
            for path in list(partial.iterdir()):
                path.replace(folder / path.name)
        else:
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_together(path: Path, artifact: Artifact, page: Page, fetch: Fetch) -> None:
    """Write a file from its chunks, several at once.

    Raises:
        ClientError: a chunk is corrupt, or they are not the chunks of such a file.
    """
    with path.open("wb") as file:
        file.truncate(artifact.bytes)
        end = 0
        while end < artifact.bytes and (chunks := page(end - 1)):
            end = _end(chunks, end, artifact)
            at_once(partial(_place, path, artifact, fetch), chunks)
    if end != artifact.bytes:
        raise corrupt(f"the artifact {artifact.path}")


def _end(chunks: Sequence[ArtifactChunk], begin: int, artifact: Artifact) -> int:
    """Return where chunks end, which must follow each other, within the file."""
    for chunk in chunks:
        if chunk.offset != begin or not 0 < chunk.bytes <= CHUNK_BYTES:
            raise corrupt(f"the artifact {artifact.path}")
        begin += chunk.bytes
    if begin > artifact.bytes:
        raise corrupt(f"the artifact {artifact.path}")
    return begin


def write_whole(
    path: Path, artifact: Artifact, pieces: Iterable[bytes], progress: Progress | None
) -> None:
    """Write a file, and break off as soon as there is more of it than it says.

    Raises:
        ClientError: there is.
    """
    left = artifact.bytes
    with path.open("wb") as file:
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                raise corrupt(f"the artifact {artifact.path}")
            file.write(piece)
            if progress:
                progress(len(piece))


def at_once(act: Callable[[T], object], items: Iterable[T]) -> None:
    """Call a function for each item, several at a time; the first error ends it."""
    # Most commands download nothing.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    threads = ThreadPoolExecutor(AT_ONCE)
    try:
        for _ in threads.map(act, items):
            pass
    finally:
        threads.shutdown(cancel_futures=True)


def _place(path: Path, artifact: Artifact, fetch: Fetch, chunk: ArtifactChunk) -> None:
    digest, came = hashlib.sha256(), 0

    def write(piece: bytes) -> None:
        nonlocal came
        came += len(piece)
        if came > chunk.bytes:
            raise corrupt(f"the artifact {artifact.path}")
        digest.update(piece)
        file.write(piece)

    # A place of its own in the file: Windows has no `os.pwrite`.
    with path.open("r+b") as file:
        file.seek(chunk.offset)
        fetch(chunk, write)
    if came != chunk.bytes or digest.hexdigest() != chunk.sha256:
        raise corrupt(f"the artifact {artifact.path}")


def download_all(
    backend: Backend, artifacts: Sequence[Artifact], folder: Path, progress: Progress | None = None
) -> list[Path]:
    """Write artifacts to a folder; identical existing files are left alone.

    A folder that does not exist appears once it is complete. If that is interrupted, another call
    goes on with what is there. Links are made last, and no file is written through one.

    Raises:
        ClientError: a path or a link leads out of the folder, or a file is corrupt or gone, or
            cannot have its name here: after all others were written. Or nothing more can be
            written or fetched.
    """
    place = folder if folder.exists() else _partial(folder, artifacts)
    fitting = _fitting(artifacts, same_name(place))
    kept = {id(artifact) for artifact in fitting}
    refused = [artifact for artifact in artifacts if id(artifact) not in kept]
    faults = [_refused(refused, folder)] if refused else []
    faults += _download_all(backend, fitting, place, progress)
    if place != folder and place.exists() and len(faults) < len(artifacts):
        place.replace(folder)
    if faults:
        raise _but_for(faults)
    return [folder / artifact.path for artifact in artifacts]


def _but_for(faults: Sequence[ClientError]) -> ClientError:
    """Return the one error about files that are not there, while all others are."""
    first, more = faults[0], len(faults) - 1
    others = f"; {counted(more, 'other file')} could not be fetched either" if more else ""
    return ClientError(f"{first.message}{others}", hint=OTHERS, code=first.code)


def _partial(folder: Path, artifacts: Sequence[Artifact]) -> Path:
    """Return the place of a folder until it is complete: of these artifacts, and of no others."""
    keys = "\n".join(artifact.key for artifact in artifacts)
    digest = hashlib.sha256(keys.encode()).hexdigest()[:8]
    return folder.with_name(f"{folder.name}.partial-{digest}")


def _download_all(
    backend: Backend, artifacts: Sequence[Artifact], folder: Path, progress: Progress | None
) -> list[ClientError]:
    """Write artifacts; return what is wrong with single ones."""
    faults: list[ClientError] = []

    def download(artifact: Artifact) -> None:
        with _noting(faults):
            _download(backend, artifact, folder, progress)

    files = [artifact for artifact in artifacts if artifact.target is None]
    at_once(download, [artifact for artifact in files if not in_chunks(artifact.key)])
    # The chunks of one file are fetched at once.
    for artifact in files:
        if in_chunks(artifact.key):
            download(artifact)
    for artifact in artifacts:
        if artifact.target is not None:
            with _noting(faults):
                _link(artifact, folder)
    return faults


@contextmanager
def _noting(faults: list[ClientError]) -> Iterator[None]:
    """Note what is wrong with one file; the others are fetched all the same."""
    try:
        yield
    except ClientError as error:
        if error.code not in OF_ONE_FILE:
            raise
        faults.append(error)


def same_name(folder: Path) -> Callable[[str], str]:
    """Return how the disk below a folder, which may not be there yet, compares names."""
    above = next(
        folder_above
        for folder_above in (folder, *folder.absolute().parents)
        if folder_above.is_dir()
    )
    try:
        with tempfile.NamedTemporaryFile(prefix=".Forge-", dir=above) as file:
            ignored = Path(file.name.swapcase()).name
            return folded_name if (above / ignored).exists() else str
    except OSError:
        return str


def _fitting(artifacts: Sequence[Artifact], same: Callable[[str], str]) -> list[Artifact]:
    """Return those whose names and links, of a worker, cannot lead out of a folder together.

    Of two with the same name the first fits, and a file does not where others need a folder.
    """
    inside = [artifact for artifact in artifacts if _fits(artifact)]
    folders = {str(above) for each in inside for above in PurePosixPath(same(each.path)).parents}
    names: set[str] = set()
    fitting = []
    for each in inside:
        name = same(each.path)
        if name not in names | folders:
            names.add(name)
            fitting.append(each)
    links = [each.path for each in fitting if each.target is not None]
    while below := below_a_link((each.path for each in fitting), links):
        fitting = [each for each in fitting if each.path != below]
        links = [link for link in links if link != below]
    return fitting


def _fits(artifact: Artifact) -> bool:
    if artifact.path.startswith("/") or not {"", ".", ".."}.isdisjoint(artifact.path.split("/")):
        return False
    if "\0" in artifact.path:
        return False
    return artifact.target is None or stays_inside(artifact.path, artifact.target)


def _refused(artifacts: Sequence[Artifact], folder: Path) -> ClientError:
    first, more = artifacts[0], len(artifacts) - 1
    link = "" if first.target is None else f", a link to {first.target!r}"
    others = f" and {counted(more, 'other')}" if more else ""
    return ClientError(
        f"the artifact {first.path!r}{link}{others} would lead out of {folder}, through a link, or"
        " into another file",
        hint=OTHERS,
        code="artifact_path_refused",
    )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Not the folder, but this name or this size is what cannot be.
        own = error.errno in OWN_FAULTS
        raise ClientError(
            f"{str(path)!r} cannot be written: {error.strerror or error}",
            hint="name another folder, or make room in it",
            code="file_unwritable" if own else "download_failed",
        ) from error


def _link(artifact: Artifact, folder: Path) -> None:
    path = _made_place(artifact, folder)
    assert artifact.target is not None  # noqa: S101 - the caller has checked it
    with _writing(path), _renamed(path) as new:
        new.symlink_to(artifact.target)


def _made_place(artifact: Artifact, folder: Path) -> Path:
    """Return an artifact's path, with the folders above it."""
    path = folder / artifact.path
    with _writing(path):
        outside = not path.parent.resolve().is_relative_to(folder.resolve())
    if outside or ".." in path.parts[-1:]:
        raise _refused([artifact], folder)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    above = [
        parent for parent in path.parents if parent != folder and parent.is_relative_to(folder)
    ]
    if any(parent.is_symlink() for parent in above):
        raise _refused([artifact], folder)
    return path


def _download(
    backend: Backend, artifact: Artifact, folder: Path, progress: Progress | None
) -> None:
    path = _made_place(artifact, folder)
    with _writing(path):
        if _same(path, artifact):
            if progress:
                progress(artifact.bytes)
            return
        backend.download(artifact, path, progress)
        if artifact.modified_at is not None:
            # Not a float, which has too few digits.
            at = (artifact.modified_at - BEGINNING) // MICROSECOND * 1000
            os.utime(path, ns=(at, at), follow_symlinks=False)


def _same(path: Path, artifact: Artifact) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != artifact.bytes:
        return False
    return _sha256(path) == artifact.sha256

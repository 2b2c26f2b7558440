"""Download stored objects: verify, unpack, and write them completely or not at all."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import zstandard
from forge_schema.model.stored import Artifact, LogChunk

from forge_client.backend import Backend, Progress
from forge_client.errors import ClientError

# A chunk is unpacked in memory, and its size is the worker's claim. Workers make chunks of 4 MiB.
LARGEST_CHUNK = 16 << 20


def unpacked(chunk: LogChunk, stored: bytes) -> bytes:
    """Return a log chunk's output.

    Raises:
        ClientError: the object is corrupt.
    """
    if chunk.bytes > LARGEST_CHUNK:
        raise corrupt(f"the log chunk {chunk.key}")
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=LARGEST_CHUNK)
        with unpacker.stream_reader(stored) as reader:
            # One byte more than expected, whatever size the frame declares.
            data = reader.read(chunk.bytes + 1)
    except zstandard.ZstdError:
        data = b""
    if len(data) != chunk.bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise corrupt(f"the log chunk {chunk.key}")
    return data


@contextmanager
def verified_file(path: Path, sha256: str, what: str) -> Iterator[Path]:
    """Yield a file to fill; it is renamed to `path` at the end if its digest is right.

    Raises:
        ClientError: the digest is wrong.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise corrupt(what)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def corrupt(what: str) -> ClientError:
    """Return the error for a corrupt object."""
    return ClientError(
        f"{what} is not what was stored: its checksum differs",
        hint="something has changed it in the store; run the job again",
        code="object_corrupt",
    )


def download_all(
    backend: Backend,
    artifacts: Sequence[Artifact],
    folder: Path,
    progress: Progress | None = None,
) -> list[Path]:
    """Write artifacts to a folder; identical existing files are left alone.

    Raises:
        ClientError: a path leads out of the folder, a file cannot be written, or is corrupt.
    """
    return [_download(backend, artifact, folder, progress) for artifact in artifacts]


def _download(
    backend: Backend, artifact: Artifact, folder: Path, progress: Progress | None
) -> Path:
    path = folder / artifact.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ClientError(
            f"the artifact {artifact.path} would be written outside {folder}",
            hint="name another folder",
            code="artifact_path_refused",
        )
    try:
        if _same(path, artifact):
            if progress:
                progress(artifact.bytes)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        backend.download(artifact, path, progress)
    except OSError as error:
        raise ClientError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="name another folder, or make room in it",
            code="download_failed",
        ) from error
    return path


def _same(path: Path, artifact: Artifact) -> bool:
    if not path.is_file() or path.stat().st_size != artifact.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256

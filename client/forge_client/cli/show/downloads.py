"""Fetches artifacts into a folder."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from forge_schema.model.stored import Artifact

from forge_client.backend import Backend, Progress
from forge_client.errors import ClientError


def download_all(
    backend: Backend,
    artifacts: Sequence[Artifact],
    folder: Path,
    progress: Progress | None = None,
) -> list[Path]:
    """Write artifacts below a folder; what is there already and the same is left alone.

    Raises:
        ClientError: a path leads out of the folder, a file cannot be written or is not what the
            job left.
    """
    return [_download(backend, artifact, folder, progress) for artifact in artifacts]


def _download(
    backend: Backend, artifact: Artifact, folder: Path, progress: Progress | None
) -> Path:
    path = folder / artifact.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ClientError(
            f"the artifact {artifact.path} would be written outside of {folder}",
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

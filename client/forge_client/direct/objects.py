"""Stored objects, fetched from the store itself."""

from pathlib import Path

from forge_schema.model.stored import Artifact
from forge_schema.storage import Store

from forge_client.backend import Progress
from forge_client.downloads import verified_file


def fetch(store: Store, artifact: Artifact, path: Path, progress: Progress | None) -> None:
    """Write an artifact to `path`, which appears whole and verified or not at all.

    Raises:
        ClientError: the object is not what the job left.
    """
    with verified_file(path, artifact.sha256, f"the artifact {artifact.path}") as partial:
        store.get_file(artifact.key, partial, progress=progress)

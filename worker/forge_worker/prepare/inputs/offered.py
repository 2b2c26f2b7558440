"""Folders of this machine that its operator offers to jobs as inputs."""

from collections.abc import Iterable
from pathlib import Path

from forge_schema.model.spec.inputs import FOLDER, source_of

from forge_worker.runners.docker.mounts import MountRefused, folder_fault


def offered_folders(words: Iterable[str], worker_dir: Path) -> dict[str, Path]:
    """Return the folders in the settings by their names.

    Raises:
        MountRefused: one is malformed, or would expose the machine to every job.
    """
    folders: dict[str, Path] = {}
    for word in words:
        name, _, place = word.rpartition("=")
        # A link is resolved now, so that what was checked is what is given.
        folder = Path(place).resolve()
        if fault := _fault(name or place, place) or folder_fault(folder, worker_dir):
            raise MountRefused(
                f"the folder {word!r} cannot be offered to jobs: {fault}",
                hint="write --offer-folders /data/imagenet,sets=/mnt/sets",
            )
        folders[name or place] = folder
    return folders


def _fault(name: str, place: str) -> str:
    if not place.startswith("/"):
        return "it is no absolute path"
    try:
        source_of(f"{FOLDER}:{name}")
    except ValueError:
        return f"jobs cannot name it {name!r}"
    return ""

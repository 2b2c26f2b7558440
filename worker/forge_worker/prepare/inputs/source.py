"""What inputs are fetched from, and what is in it; and the folders that the operator offers."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from forge_schema.model.errors import ForgeError
from forge_schema.model.spec.inputs import FOLDER, source_of
from forge_schema.storage.manifest import CHUNK_BYTES, Extent

from forge_worker.runners.docker.mounts import MountRefused, folder_fault
from forge_worker.transfers.fetching import FetchedFile, FileParts

NAME_BYTES, PATH_BYTES = 255, 3000


class InputUnusable(ForgeError):
    """An input of a job is not there, or cannot be used. The same try would fail again."""

    code = "input_unusable"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file outside the store, read in parts of equal size; its key is the source's own.

    `sha256` is that of the whole file, empty if it is not known.
    """

    path: str
    size: int
    key: str
    sha256: str = ""

    @property
    def extents(self) -> Sequence[Extent]:
        """Its parts, in order; only of a single one, the SHA-256 may be known."""
        sha256 = self.sha256 if self.size <= CHUNK_BYTES else ""
        return [
            Extent(offset, min(CHUNK_BYTES, self.size - offset), sha256, self.key)
            for offset in range(0, max(1, self.size), CHUNK_BYTES)
        ]


@dataclass(frozen=True, slots=True)
class InputListing:
    """The files and links of an input now.

    `version` is what people call this state of the source. `contents` identifies what is in each
    file, by its path.
    """

    version: str
    files: Sequence[FetchedFile]
    contents: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def identity(self) -> str:
        """A digest of what the source has now."""
        state = [sorted(self.contents.items()), sorted(self.links.items())]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()


class InputSource(FileParts, Protocol):
    """A place from which an input is fetched."""

    def listing(self) -> InputListing:
        """Return what is there now.

        Raises:
            InputUnusable: there is nothing, or access is denied.
            StoreError: it does not answer.
        """


def below(path: str, place: str) -> str:
    """Return a path relative to a place that it is below; of the place itself, its name."""
    return PurePosixPath(path).name if path == place else path[len(place) :].lstrip("/")


def check_paths(paths: Iterable[str]) -> None:
    """Check that files can have these paths below a folder.

    Raises:
        InputUnusable: one cannot.
    """
    for path in paths:
        names = path.split("/")
        if {"", ".", ".."} & {*names} or "\0" in path or len(path.encode()) > PATH_BYTES:
            raise InputUnusable(f"{path!r} cannot be the path of a file")
        if any(len(name.encode()) > NAME_BYTES for name in names):
            raise InputUnusable(f"{path!r} has a longer name than a file can have")


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

"""What inputs are fetched from: what other jobs stored, and folders that the operator offers."""

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from forge_schema.model.bundles import stays_inside
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Fence
from forge_schema.model.spec.inputs import ARTIFACT, FOLDER, NamedSource, source_of
from forge_schema.model.stored import InputFile
from forge_schema.storage import ObjectMissing, Objects
from forge_schema.storage.manifest import (
    CHUNK_BYTES,
    CheckpointUnsound,
    Entry,
    Extent,
    Manifest,
    joined,
)

from forge_worker.queue.gateway import Gateway
from forge_worker.runners.docker.mounts import MountRefused, folder_fault
from forge_worker.transfers.fetching import FetchedFile, FileParts, StoredParts

NAME_BYTES, PATH_BYTES = 255, 3000


class InputUnusable(ForgeError):
    """An input of a job is not there, or cannot be used. The same try would fail again."""


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
    """Check that files can have these paths below a folder; `InputUnusable` if one cannot."""
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise InputUnusable(f"two objects would be the file {path!r}, as a/b and a//b are")
        seen.add(path)
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


class JobFiles:
    """The artifacts of another job, all or those at a path, or one of its checkpoints."""

    def __init__(
        self, source: NamedSource, fence: Fence, gateway: Gateway, objects: Objects
    ) -> None:
        self._source = source
        self._fence = fence
        self._gateway = gateway
        self._objects = objects
        self._parts = StoredParts(objects)

    def listing(self) -> InputListing:
        """Return the files of the job, as `InputSource`."""
        try:
            if self._source.kind == ARTIFACT:
                return self._artifacts()
            return self._checkpoint()
        except ObjectMissing as error:
            raise InputUnusable(f"the store does not have it any more: {error.message}") from error
        except CheckpointUnsound as error:
            raise InputUnusable(error.message) from error

    def expect(self, extents: Sequence[Extent]) -> None:
        """Prepare for parts that are read next."""
        self._parts.expect(extents)

    def read(self, extent: Extent) -> Generator[bytes, None, None]:
        """Yield the content of a part."""
        return self._parts.read(extent)

    def _artifacts(self) -> InputListing:
        rows = list(self._rows())
        if not rows:
            what = f"artifact {self._source.path!r}" if self._source.path else "artifacts"
            raise self._lacks(what)
        place = self._source.path
        paths = {row.path: below(row.path, place) for row in rows}
        check_paths(paths.values())
        # One that a link leads out of would be a path of this machine.
        links = {
            paths[row.path]: row.target
            for row in rows
            if row.target is not None and stays_inside(paths[row.path], row.target)
        }
        files = [row for row in rows if row.target is None]
        entries = [_entry(row, paths[row.path]) for row in files]
        contents = {paths[row.path]: row.sha256 for row in files}
        # Its objects are `jobs/JOB/ATTEMPT-TOKEN/…`.
        attempt = rows[0].keys[0].split("/")[2].partition("-")[0]
        return InputListing(f"attempt {attempt}", entries, contents, links)

    def _rows(self) -> Iterator[InputFile]:
        job, path, after = self._source.job_id, self._source.path, ""
        while page := self._gateway.input_artifacts(self._fence, job, path, after):
            yield from page
            after = page[-1].path

    def _checkpoint(self) -> InputListing:
        named = {
            n: int(text) for n, text in self._source.parts.items() if n in {"attempt", "number"}
        }
        checkpoint = self._gateway.input_checkpoint(
            self._fence, self._source.job_id, named.get("attempt"), named.get("number")
        )
        if checkpoint is None:
            raise self._lacks("such checkpoint")
        files: Mapping[int, Sequence[Entry]] = {
            rank: self._manifest(key) for rank, key in enumerate(checkpoint.keys)
        }
        entries = [entry for _, entry in joined(files, 0)]
        return InputListing(
            f"{checkpoint.attempt}.{checkpoint.number}",
            [entry for entry in entries if not entry.target],
            {entry.path: entry.sha256 for entry in entries if not entry.target},
            {entry.path: entry.target for entry in entries if entry.target},
        )

    def _manifest(self, key: str) -> tuple[Entry, ...]:
        return Manifest.loaded(self._objects.get(key), job_id=self._source.job_id).files

    def _lacks(self, what: str) -> InputUnusable:
        return InputUnusable(
            f"job {self._source.job_id} has no {what}",
            hint=f"`forge artifacts {self._source.job_id}` and `forge checkpoints` list them",
        )


def _entry(row: InputFile, path: str) -> Entry:
    if row.chunk_bytes:
        return Entry.in_chunks(path, row.bytes, row.keys, row.chunk_bytes)
    return Entry(path, row.bytes, row.sha256, row.keys[0])

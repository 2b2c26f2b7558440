"""Inputs on this machine: fetched once, shared by the jobs of an owner, evicted by last use.

A folder `files` is given to jobs only once the file `complete` beside it says that it is whole.
Until then, a journal says which parts are there. Everything in it is read-only.

Nothing is synced to the disk, which takes longer than the rest: when the machine has restarted,
`complete` counts no more, and what is there is verified by the journal as after an interruption.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

from forge_schema.model.attempt_records import GivenInput
from forge_schema.model.quantities import counted, size_text
from forge_schema.storage import StoreUnreachable
from forge_schema.storage.manifest import CheckpointUnsound, Extent

from forge_worker.attempt import LiveAttempt
from forge_worker.clock import this_boot
from forge_worker.files.safe_files import Parts, entered, walk, weight
from forge_worker.files.small_files import write_atomically
from forge_worker.prepare.cache import LruFolders, visible
from forge_worker.prepare.inputs.source import InputListing, InputSource, InputUnusable, RemoteFile
from forge_worker.transfers import TRANSFERS, batches
from forge_worker.transfers.fetching import FetchedFile, Fetcher

PIECE = 1 << 20

Part = tuple[str, int]
"""The path of a file, and the offset of a part in it."""
COMPLETE, FILES, JOURNAL = "complete", "files", "journal"
READABLE_FILE, READABLE_FOLDER = 0o444, 0o555
OWN_FILE, OWN_FOLDER = 0o644, 0o755

State = dict[str, list[Any]]
"""Of each file its size and mtime in ns, of each link what it says, by relative path."""


class Journal:
    """A file with a line for each part that is in its place: path, offset and SHA-256.

    It is not synced to disk: what it says is verified before a fetch goes on. Thread-safe.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self.digests: dict[Part, str] = {}
        self._file: FileIO | None = None

    def add(self, path: str, extent: Extent, sha256: str) -> None:
        """Note a part that is in its place; `OSError` if the disk is full or faulty."""
        with self._lock:
            self.digests[path, extent.offset] = sha256
            if self._file is None:
                # Each line is written at once.
                self._file = self._path.open("ab", buffering=0)
            self._file.write(_line(path, extent.offset, sha256).encode())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def resume(
        self, folder: Path, files: Sequence[FetchedFile], go_on: Callable[[int], None]
    ) -> list[Part]:
        """Return the parts that are in the folder as they were written; forget the others.

        Args:
            folder: where they were written.
            files: those to fetch now.
            go_on: called for each piece that is read; what it raises ends this.
        """
        digests = dict(self._lines())
        known = [
            ((file, extent, digests[part]), extent.size)
            for file in files
            for extent in file.extents
            if (part := (file.path, extent.offset)) in digests
        ]
        checks = (partial(_sound, folder, few, go_on) for few in batches(known))
        self.digests = {part: digests[part] for parts in TRANSFERS.each(checks) for part in parts}
        # Nothing is appended to a line that was cut off.
        lines = [_line(*part, sha256) for part, sha256 in self.digests.items()]
        write_atomically(self._path, "".join(lines), durable=False)
        return list(self.digests)

    def _lines(self) -> Iterator[tuple[Part, str]]:
        if not self._path.exists():
            return
        # The last line may have been cut off.
        for line in self._path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            try:
                path, offset, sha256 = json.loads(line)
            except ValueError:
                continue
            yield (path, offset), sha256


def _line(path: str, offset: int, sha256: str) -> str:
    return json.dumps([path, offset, sha256]) + "\n"


def _sound(
    folder: Path, parts: Sequence[tuple[FetchedFile, Extent, str]], go_on: Callable[[int], None]
) -> list[Part]:
    return [
        (file.path, extent.offset)
        for file, extent, sha256 in parts
        if digest_of(folder / file.path, file.size, extent, go_on) == sha256
        and sha256 == (extent.sha256 or sha256)
    ]


def digest_of(path: Path, size: int, extent: Extent, go_on: Callable[[int], None]) -> str | None:
    """Return the SHA-256 of a part of a file; None if there is no file of this size."""
    digest, end = hashlib.sha256(), extent.offset + extent.size
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(file).st_size != size:
            return None
        for offset in range(extent.offset, end, PIECE):
            piece = os.pread(file, min(PIECE, end - offset), offset)
            go_on(len(piece))
            digest.update(piece)
    finally:
        os.close(file)
    return digest.hexdigest()


class InputCache:
    """Folders of inputs below one folder.

    Args:
        folders: keeps and evicts them.
        floor_bytes: how much of the disk stays free.
    """

    def __init__(self, folders: LruFolders, floor_bytes: int) -> None:
        self._folders = folders
        self._floor_bytes = floor_bytes

    def fetch(
        self, source: InputSource, text: str, attempt: LiveAttempt, name: str
    ) -> tuple[Path, GivenInput]:
        """Return the folder with an input, which is fetched if it is not here or was damaged.

        It stays until the attempt's own folders are removed.

        Args:
            source: where it is fetched from.
            text: names the source.
            attempt: the job that needs it.
            name: the input's name, for the job's log.

        Raises:
            InputUnusable: it is not there, or does not fit on the disk.
            StoreError: the source does not answer.
            Stopped: the attempt must stop.
        """
        listing = source.listing()
        whose = json.dumps([attempt.grant.owner, text, listing.identity])
        key = hashlib.sha256(whose.encode()).hexdigest()[:40]
        with self._folders.locked(key, attempt.while_wanted) as folder:
            given = _kept(folder)
            if fresh := given is None:
                self._make_room(folder, listing.size)
                size = f"{counted(len(listing.files), 'file')}, {size_text(listing.size)}"
                attempt.note(f"fetching the input {name}: {size}")
                given = _filled(folder, source, listing, attempt, text)
            self._folders.mark_used(key, attempt.folders)
        if fresh:
            self._evict()
        assert given is not None  # noqa: S101 - it was fetched
        return folder / FILES, given

    def _make_room(self, folder: Path, size: int) -> None:
        """Remove inputs that no job uses until another one fits."""
        missing = max(0, size - weight(folder))
        self._evict(missing)
        free = shutil.disk_usage(folder.parent).free - self._floor_bytes
        if missing > free:
            raise InputUnusable(
                f"its {size_text(size)} do not fit on the disk of this worker, which has"
                f" {size_text(max(0, free))} to spare",
                hint="run it on a worker with a larger disk, or free some there",
            )

    def _evict(self, more: int = 0) -> None:
        folders = [(path.name,) for path in visible(self._folders.root)]
        self._folders.drop_oldest(folders, _weighed, more)


def _kept(folder: Path) -> GivenInput | None:
    """Return what a complete folder has; None if it was not completed, or changed since."""
    try:
        head, state, boot = (folder / COMPLETE).read_text(encoding="utf-8").splitlines()
        if boot != this_boot() or json.loads(state) != _state(folder / FILES):
            return None
        return GivenInput(**json.loads(head))
    except (OSError, ValueError, TypeError):
        return None


def _filled(
    folder: Path, source: InputSource, listing: InputListing, attempt: LiveAttempt, text: str
) -> GivenInput:
    """Fetch what is missing in a folder, and mark it as complete."""
    files, journal = folder / FILES, Journal(folder / JOURNAL)
    begun = files.exists()
    files.mkdir(parents=True, exist_ok=True)
    if begun:
        (folder / COMPLETE).unlink(missing_ok=True)
        _set_modes(files, OWN_FILE, OWN_FOLDER)
        _tidy(files, listing)
    there = journal.resume(files, listing.files, attempt.while_wanted) if begun else None
    fetcher = Fetcher(source, files, attempt.while_wanted, there=there, placed=journal.add)
    try:
        fetcher.fetch(listing.files)
    except CheckpointUnsound as error:
        raise InputUnusable(error.message) from error
    finally:
        journal.close()
    _check_whole(files, listing, attempt)
    for path, target in listing.links.items():
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        (files / path).symlink_to(target)
    _set_modes(files, READABLE_FILE, READABLE_FOLDER)
    given = GivenInput(
        text, listing.version, _digest(journal, listing), listing.size, len(listing.files)
    )
    if not this_boot():
        # Nothing tells a restart: the files must be on disk before the list marks them as complete.
        os.sync()
    lines = f"{json.dumps(asdict(given))}\n{json.dumps(_state(files))}\n{this_boot()}\n"
    write_atomically(folder / COMPLETE, lines, durable=not this_boot())
    return given


def _check_whole(files: Path, listing: InputListing, attempt: LiveAttempt) -> None:
    """Compare large files with their SHA-256, where the source has told it."""
    for file in listing.files:
        if isinstance(file, RemoteFile) and file.sha256 and len(file.extents) > 1:
            whole = Extent(0, file.size, file.sha256, file.key)
            if digest_of(files / file.path, file.size, whole, attempt.while_wanted) != file.sha256:
                (files / file.path).unlink()
                raise StoreUnreachable(f"{file.path!r} was damaged on its way")


def _tidy(files: Path, listing: InputListing) -> None:
    """Remove what an earlier fetch or a job left that is no file of the input."""
    sizes = {file.path for file in listing.files}
    for parts, status in list(walk(files)):
        if not stat.S_ISDIR(status.st_mode) and not (
            stat.S_ISREG(status.st_mode) and "/".join(parts) in sizes
        ):
            with suppress(OSError), entered(files, parts[:-1]) as place:
                os.unlink(parts[-1], dir_fd=place)


def _digest(journal: Journal, listing: InputListing) -> str:
    """Return the SHA-256 of all parts' SHA-256, with their paths and offsets, and of the links."""
    content = [sorted([*part, sha256] for part, sha256 in journal.digests.items())]
    text = json.dumps([content, sorted(listing.links.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _state(files: Path) -> State:
    state: State = {}
    for parts, status in walk(files):
        path = "/".join(parts)
        if stat.S_ISLNK(status.st_mode):
            state[path] = [str((files / path).readlink())]
        elif not stat.S_ISDIR(status.st_mode):
            state[path] = [status.st_size, status.st_mtime_ns]
    return state


def _set_modes(files: Path, of_files: int, of_folders: int) -> None:
    statuses: Mapping[Parts, os.stat_result] = {(): files.lstat(), **dict(walk(files))}
    for parts, status in statuses.items():
        if not stat.S_ISLNK(status.st_mode):
            mode = of_folders if stat.S_ISDIR(status.st_mode) else of_files
            files.joinpath(*parts).chmod(mode)


def _weighed(root: Path, parts: Parts) -> tuple[int, int]:
    """Return when an input was used last, and its bytes."""
    folder = root.joinpath(*parts)
    used = folder.lstat().st_mtime_ns
    try:
        with (folder / COMPLETE).open(encoding="utf-8") as file:
            return used, int(json.loads(file.readline())["bytes"])
    except (OSError, ValueError, KeyError):
        return used, weight(folder)

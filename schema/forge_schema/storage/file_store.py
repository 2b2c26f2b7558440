"""A store of files in a folder, the default without S3."""

import errno
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from forge_schema.storage.keys import RESERVED, checked, checked_prefix, is_valid
from forge_schema.storage.store import (
    KeyInvalid,
    ObjectMissing,
    Piece,
    Progress,
    StoredObject,
    StoreError,
    StoreUnreachable,
    flush,
    flush_folder,
    landing,
    unplaced,
)

CHUNK = 1 << 20
# Of a stream, of which a server may have many.
PIECE = 64 << 10
PLACING_TRIES = 20
# Other file systems, and kernels before it worked between all of them.
NO_COPY = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}


@dataclass(frozen=True)
class Incoming:
    """An object written in pieces. It is invisible until `place`."""

    write: Callable[[bytes | memoryview], object]
    place: Callable[..., bool]


class FileStore:
    """A folder as an object store, which several processes and machines may share."""

    def __init__(self, root: Path, *, url: str | None = None) -> None:
        self.root = root
        self.url = url or root.absolute().as_uri()

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        """Do nothing: no permission is needed."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        target = self._path(key)
        with self._writing(key) as (file, temporary):
            if if_absent and target.exists():
                return False
            file.write(data)
            return self._place(file, temporary, target, if_absent=if_absent)

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        target = self._path(key)
        with path.open("rb") as source, self._writing(key) as (file, temporary):
            if if_absent and target.exists():
                return False
            _copy(source, file, progress)
            return self._place(file, temporary, target, if_absent=if_absent)

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        target = self._path(key)
        with self._writing(key) as (into, temporary):
            if not _copied(file.fileno(), into.fileno(), offset, size):
                return False
            self._place(into, temporary, target, if_absent=False)
        return True

    def put_unread(self, *_: object) -> None:
        return None  # what is copied after it was hashed may share the disk's blocks

    def put_together(self, objects: Mapping[str, bytes]) -> bool:
        with ExitStack() as held:
            written = []
            for key, data in objects.items():
                target = self._path(key)
                file, temporary = held.enter_context(self._writing(key))
                file.write(data)
                written.append((file, temporary, target))
            for file, _, _ in written:
                flush(file)
            for _, temporary, target in written:
                self._move(temporary, target, if_absent=False)
            for folder in {target.parent for _, _, target in written}:
                flush_folder(folder)
        return True

    def get(self, key: str) -> bytes:
        with self.open(key) as file:
            return file.read()

    def stream(self, key: str) -> Generator[bytes, None, None]:
        with self.open(key) as file:
            yield from iter(lambda: file.read(PIECE), b"")

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        with self.open(key) as source, landing(path) as file:
            _copy(source, file, progress)

    def open(self, key: str) -> BinaryIO:
        """Open an object for reading; the caller closes it; `ObjectMissing` if there is none."""
        try:
            return self._path(key).open("rb")
        except OSError as error:
            if error.errno in ABSENT:
                raise ObjectMissing(f"there is no object {key} in {self.url}") from error
            raise _failed(f"{key} could not be read", error) from error

    @contextmanager
    def incoming(self, key: str, *, if_absent: bool = False) -> Iterator[Incoming]:
        """Write an object in pieces. An object not placed by the end of the block is deleted.

        `place` returns the same as `put`; it may be given another key.
        """

        def place(named: str = key) -> bool:
            return self._place(file, temporary, self._path(named), if_absent=if_absent)

        self._path(key)
        with self._writing(key) as (file, temporary):
            yield Incoming(file.write, place)

    def size(self, key: str) -> int | None:
        try:
            with self.open(key) as file:
                return os.fstat(file.fileno()).st_size
        except ObjectMissing:
            return None

    def modified(self, key: str) -> datetime | None:
        try:
            with self.open(key) as file:
                return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
        except ObjectMissing:
            return None

    def uploader(self, key: str) -> str | None:  # noqa: ARG002 - the server itself knows who uploads
        return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        folder, _, _ = checked_prefix(prefix).rpartition("/")
        if folder:
            yield from _walk(self._path(folder), f"{folder}/", prefix)
        else:
            yield from _walk(self.root, "", prefix)

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink()
        except OSError as error:
            if error.errno not in ABSENT:
                raise _failed(f"{key} could not be deleted", error) from error
            return
        self._prune(path.parent)

    def check(self) -> None:
        try:
            with unplaced(self._workshop()) as (file, _):
                flush(file)
        except OSError as error:
            raise StoreUnreachable(
                f"the store's folder {self.root} cannot be written to: {error.strerror}",
                hint="create or mount the folder, or give this user write access to it",
            ) from error

    def tidy(self, older_than_s: float) -> int:
        removed = 0
        for path in (self.root / RESERVED).glob("*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older_than_s:
                    path.unlink()
                    removed += 1
        return removed

    def _path(self, key: str) -> Path:
        path = self.root / checked(key)
        # The key cannot lead out of the folder, but a symbolic link in the store could.
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise KeyInvalid(f"{key!r} leads out of the store's folder")
        return path

    def _workshop(self) -> Path:
        """Return the folder for unfinished objects, on the same disk, so that moves are atomic.

        The root's parent must exist: a missing mount point must not be created.
        """
        folder = self.root / RESERVED
        if not folder.is_dir():
            for needed in (self.root, folder):
                needed.mkdir(exist_ok=True)
                flush_folder(needed.parent)
        return folder

    @contextmanager
    def _writing(self, key: str) -> Iterator[tuple[BinaryIO, Path]]:
        try:
            with unplaced(self._workshop()) as written:
                yield written
        except OSError as error:
            raise _failed(f"{key} could not be written", error) from error

    def _place(self, file: BinaryIO, temporary: Path, target: Path, *, if_absent: bool) -> bool:
        flush(file)
        moved = self._move(temporary, target, if_absent=if_absent)
        if moved:
            flush_folder(target.parent)
        return moved

    def _move(self, temporary: Path, target: Path, *, if_absent: bool) -> bool:
        made: list[Path] = []
        for _ in range(PLACING_TRIES):
            made += self._make_folders(target.parent)
            try:
                if if_absent:
                    os.link(temporary, target)
                else:
                    temporary.replace(target)
            except FileExistsError:
                return False
            except FileNotFoundError:
                continue  # another process has just pruned the folder
            # Not each when it was made: a journal takes all that was done so far with the first.
            for folder in made:
                flush_folder(folder.parent)
            return True
        raise StoreError(f"the folder {target.parent} keeps disappearing")

    def _make_folders(self, folder: Path) -> Sequence[Path]:
        """Make a folder and those above it; return what was missing."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for absent in reversed(missing):
            # Another process may create it, or prune its parent, at the same moment.
            with suppress(FileExistsError, FileNotFoundError):
                absent.mkdir()
        return missing

    def _prune(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self.root:
                folder.rmdir()
                folder = folder.parent


def _copy(source: BinaryIO, into: BinaryIO, progress: Progress | None) -> None:
    while chunk := source.read(CHUNK):
        into.write(chunk)
        if progress:
            progress(len(chunk))


def _walk(folder: Path, above: str, prefix: str) -> Iterator[StoredObject]:
    """Walk depth first, with folders sorted by name and a slash, which is the order of keys."""
    for name, path, size in _entries(folder):
        key = above + name
        if size is not None and key.startswith(prefix) and is_valid(key):
            yield StoredObject(key, size)
        elif size is None and key.startswith(prefix):
            yield from _walk(path, key, prefix)


def _entries(folder: Path) -> Iterator[tuple[str, Path, int | None]]:
    entries: list[tuple[str, Path, int | None]] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as scan:
        for entry in scan:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False) and entry.name != RESERVED:
                    entries.append((f"{entry.name}/", Path(entry.path), None))
                elif entry.is_file(follow_symlinks=False):
                    size = entry.stat(follow_symlinks=False).st_size
                    entries.append((entry.name, Path(entry.path), size))
    yield from sorted(entries, key=lambda entry: entry[0])


def _copied(source: int, into: int, offset: int, size: int) -> bool:
    """Copy within the kernel, which may share the disk's blocks; False if it cannot do that."""
    if not hasattr(os, "copy_file_range"):
        return False
    done = 0
    try:
        while done < size:
            step = os.copy_file_range(source, into, size - done, offset + done, done)
            if not step:
                break
            done += step
    except OSError as error:
        if done or error.errno not in NO_COPY:
            raise
        return False
    return True


def _failed(what: str, error: OSError) -> StoreError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreError(f"{what}: the store's disk is full", hint="free space on that disk")
    return StoreUnreachable(
        f"{what}: {error.strerror or error}",
        hint="check that the store's folder is mounted and that this user has access to it",
    )

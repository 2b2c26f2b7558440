"""Unpack an untrusted bundle: its digest proves its identity, not that it is harmless."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from forge_schema.code import BundleRefused, Header, TarStream
from forge_schema.model.bundles import folded_name, name_fault
from forge_schema.model.quantities import counted, size_text

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of a file system whose rules for names are stricter than ours.
BAD_NAME = {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits on an unpacked archive: bytes, and number of entries."""

    total_bytes: int = 8 << 30
    file_bytes: int = 8 << 30
    entries: int = 100_000


def extract(
    archive: Path,
    into: Path,
    *,
    limits: ArchiveLimits,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Unpack a tar.zst as `extract_files` does.

    Raises:
        BundleRefused, OSError: as `extract_files`.
    """
    with archive.open("rb") as file:
        extract_files([file], into, limits=limits, progress=progress)


def extract_files(
    files: Iterable[IO[bytes]],
    into: Path,
    *,
    limits: ArchiveLimits,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Unpack a tar in files of a zstd frame each, one after the other.

    `into` must be empty or absent, and is empty after a failure. `progress` gets the bytes written
    since its last call; what it raises ends the unpacking.

    Raises:
        BundleRefused: the archive breaks one of the rules.
        OSError: the archive cannot be read, the disk cannot be written, or `into` is not empty.
    """
    into.mkdir(parents=True, exist_ok=True)
    root = os.open(into, FOLDER)
    try:
        if os.listdir(root):  # noqa: PTH208  a descriptor has no pathlib
            raise FileExistsError(errno.ENOTEMPTY, "the bundle's folder is not empty", into)
        with _emptied_on_failure(root):
            _Unpacking(root, limits, progress).run(TarStream(files))
    finally:
        os.close(root)


@contextmanager
def _emptied_on_failure(root: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        for entry in list(os.scandir(root)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=root)
            else:
                os.unlink(entry.name, dir_fd=root)
        if isinstance(error, OSError) and error.errno in BAD_NAME:
            raise BundleRefused(f"the file system refuses one of its names: {error}") from error
        raise


@dataclass
class _Unpacking:
    root: int
    limits: ArchiveLimits
    progress: Callable[[int], None] | None = None
    written: int = 0
    seen: dict[str, Header] = field(default_factory=dict)

    def run(self, stream: TarStream) -> None:
        for header in stream.headers():
            self._admit(header)
            above, _, name = header.name.rpartition("/")
            self._make_folders(above)
            self._claim(header)
            with self._opened(above) as folder:
                if header.link is not None:
                    os.symlink(header.link, name, dir_fd=folder)
                elif header.folder:
                    _make_folder(folder, name)
                else:
                    self._write(folder, name, header, stream)

    def _admit(self, header: Header) -> None:
        if fault := name_fault(header.name):
            raise BundleRefused(f"{header.name!r} {fault}")
        if header.size > self.limits.file_bytes:
            raise BundleRefused(
                f"{header.name!r} is larger than {size_text(self.limits.file_bytes)}"
            )
        self._spend(header.size, written=0)

    def _make_folders(self, path: str) -> None:
        """Create an entry's parent folders, if the archive has not listed them before."""
        above, name = "", ""
        for name in filter(None, path.split("/")):
            header = Header(f"{above}/{name}" if above else name, True, True, 0)  # noqa: FBT003
            if self.seen.get(folded_name(header.name)) != header:
                self._claim(header)
                with self._opened(above) as folder:
                    _make_folder(folder, name)
            above = header.name

    def _claim(self, header: Header) -> None:
        twin = self.seen.get(folded_name(header.name))
        if twin:
            raise BundleRefused(f"{header.name!r} appears twice, first as {twin.name!r}")
        if len(self.seen) >= self.limits.entries:
            raise BundleRefused(
                f"it has more than {counted(self.limits.entries, 'file')} and folders"
            )
        self.seen[folded_name(header.name)] = header

    def _write(self, folder: int, name: str, header: Header, stream: TarStream) -> None:
        mode = 0o755 if header.executable else 0o644
        with os.fdopen(os.open(name, NEW_FILE, mode, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask says
            for chunk in stream.content(header.size):
                self._spend(len(chunk), written=len(chunk))
                file.write(chunk)
                if self.progress:
                    self.progress(len(chunk))

    def _spend(self, size: int, *, written: int) -> None:
        if self.written + size > self.limits.total_bytes:
            raise BundleRefused(f"it unpacks to more than {size_text(self.limits.total_bytes)}")
        self.written += written

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open a folder below the root one name at a time, following no link."""
        descriptor = os.dup(self.root)
        try:
            for name in filter(None, path.split("/")):
                inner = os.open(name, FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _make_folder(parent: int, name: str) -> None:
    os.mkdir(name, 0o755, dir_fd=parent)
    descriptor = os.open(name, FOLDER, dir_fd=parent)
    try:
        os.fchmod(descriptor, 0o755)
    finally:
        os.close(descriptor)

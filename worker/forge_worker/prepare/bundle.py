"""Bundles on this machine: fetched once, verified and unpacked as untrusted, dropped to make room.

So are the segments of a large bundle, each for itself.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

import structlog
from forge_schema.code import BundleRefused, Header, TarStream
from forge_schema.model.bundles import MOST_LIST_BYTES, folded_name, name_fault
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.stored import Segment, segments_in
from forge_schema.storage import Objects, Progress, keys

from forge_worker.files.small_files import try_lock
from forge_worker.transfers import TRANSFERS

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of a file system whose rules for names are stricter than ours.
BAD_NAME = {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
__all__ = ["BundleCache", "BundleCorrupt", "BundleRefused", "archive"]

DOWNLOADS = 2  # a second try if the content does not match its digest
SEGMENTS = 32  # so many are expected at once: a signed URL is to be used before it expires
LOCK_FILES = 64  # bundles that share a lock file are fetched one after the other
LOCK_SECONDS = 900.0
LOCK_POLL_SECONDS = 0.05
STALE_SECONDS = 3600.0

log = structlog.get_logger(__name__)


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


class BundleCorrupt(ForgeError):
    """The store's copy of a bundle does not match its digest."""


class BundleCache:
    """Archives, lists of segments and segments by digest in one folder.

    It is shared between threads and processes. A user of a file holds a shared lock on it;
    evicting it needs the exclusive lock. The kernel releases both when a process dies.
    """

    def __init__(self, store: Objects, root: Path, max_bytes: int) -> None:
        self.store, self.root, self.max_bytes = store, root, max_bytes
        self._arriving, self._locks = root / "arriving", root / "turns"
        if not self._locks.is_dir():
            for folder in (self._arriving, self._locks):
                folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, digest: str) -> Path:
        """Return the verified archive; it may be evicted later, unlike one under `holding`.

        Raises:
            BundleCorrupt: the store's copy is wrong, even when downloaded again.
            StoreError: the store does not have the bundle, or does not answer.
        """
        with self.holding(digest) as path:
            return path

    def unpack(
        self,
        digest: str,
        into: Path,
        *,
        limits: ArchiveLimits | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fetch a bundle and unpack it into a folder that is empty or absent.

        What `progress` raises ends the call; it is also called while another download is awaited.

        Raises:
            BundleCorrupt: as `fetch`.
            BundleRefused: the archive breaks one of the rules.
            StoreError: as `fetch`.
        """
        limits = limits or ArchiveLimits()
        with self.holding(digest, progress=progress) as path:
            with path.open("rb") as file:
                segments = _segments(file, digest)
            if not segments:
                extract(path, into, limits=limits, progress=progress)
                return
            self._fetch_segments(segments, progress)
            with closing(self._opened(segments, progress)) as files:
                extract_files(files, into, limits=limits, progress=progress)

    def _fetch_segments(self, segments: Sequence[Segment], progress: Progress | None) -> None:
        """Fetch the segments that are not cached, several at once."""
        digests = dict.fromkeys(segment.sha256 for segment in segments)
        missing = [digest for digest in digests if not archive(self.root, digest).exists()]
        for start in range(0, len(missing), SEGMENTS):
            some = missing[start : start + SEGMENTS]
            self.store.expect(gets=[keys.segment(digest) for digest in some])
            for _ in TRANSFERS.each(
                partial(self._fetch_segment, digest, progress) for digest in some
            ):
                pass
            # Not after each of them: the cache may have thousands of files.
            self._make_room()

    def _fetch_segment(self, digest: str, progress: Progress | None) -> None:
        with self._held(digest, keys.segment(digest), progress):
            pass

    def _opened(
        self, segments: Sequence[Segment], progress: Progress | None
    ) -> Generator[BufferedReader, None, None]:
        # One after the other: a job may have more segments than files that it may open.
        for segment in segments:
            evicted = not archive(self.root, segment.sha256).exists()
            key = keys.segment(segment.sha256)
            with self._held(segment.sha256, key, progress) as path, path.open("rb") as file:
                if evicted:
                    self._make_room()
                yield file

    @contextmanager
    def holding(self, digest: str, *, progress: Progress | None = None) -> Iterator[Path]:
        """Keep the verified archive from being evicted while the block runs; raises as `fetch`."""
        cached = archive(self.root, digest).exists()
        with self._held(digest, keys.bundle(digest), progress) as path:
            if not cached:
                self._make_room()
            yield path

    @contextmanager
    def _held(self, digest: str, key: str, progress: Progress | None) -> Iterator[Path]:
        path = archive(self.root, digest)
        with _opened_sound(path, digest) or self._fetched(path, digest, key, progress) as file:
            os.utime(file.fileno())  # the order of eviction is the order of use
            yield path

    def _fetched(
        self, path: Path, digest: str, key: str, progress: Progress | None
    ) -> BufferedReader:
        with self._locked(digest, progress):
            # Another may have fetched it meanwhile.
            if file := _opened_sound(path, digest):
                return file
            if path.exists():
                log.warning("bundle_damaged", note="fetching it again", bundle=digest[:12])
                path.unlink(missing_ok=True)
            return self._download(path, digest, key, progress)

    def _download(
        self, path: Path, digest: str, key: str, progress: Progress | None
    ) -> BufferedReader:
        arriving = self._arriving / f"{digest}-{secrets.token_hex(6)}"
        try:
            for _ in range(DOWNLOADS):
                self.store.get_file(key, arriving, progress=progress)
                if file := _opened_sound(arriving, digest):
                    arriving.replace(path)
                    return file
        finally:
            arriving.unlink(missing_ok=True)
        raise BundleCorrupt(
            f"the store's copy of {key} is damaged",
            hint="submit it again, which replaces the stored copy",
        )

    @contextmanager
    def _locked(self, digest: str, progress: Progress | None) -> Iterator[None]:
        """Let one process at a time download a bundle; stop waiting for a frozen one."""
        name = f"{int(digest[:8], 16) % LOCK_FILES:02d}"
        with (self._locks / name).open("ab") as file:
            deadline = time.monotonic() + LOCK_SECONDS
            while not try_lock(file) and time.monotonic() < deadline:
                time.sleep(LOCK_POLL_SECONDS)
                if progress:
                    progress(0)
            yield

    def _make_room(self) -> None:
        """Remove the least recently used archives until the rest fits, but none in use."""
        bundles = []
        for path in self.root.glob("*.tar.zst"):
            with suppress(FileNotFoundError):
                status = path.stat()
                bundles.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in bundles) - self.max_bytes
        for _, size, path in sorted(bundles):
            if excess > 0 and _removed(path):
                excess -= size
        self._clear_stale()

    def _clear_stale(self) -> None:
        for path in self._arriving.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()


def archive(root: Path, digest: str) -> Path:
    """Return where a bundle is cached below `root`."""
    return root / f"{keys.checked_digest(digest)}.tar.zst"


def _opened_shared(path: Path) -> BufferedReader | None:
    """Open a file under a shared lock; None if it does not exist or is being removed."""
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        fcntl.flock(file, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if _is_at(file, path):
                return file
        file.close()


def _opened_sound(path: Path, digest: str) -> BufferedReader | None:
    """Open an archive under a shared lock; None if it is missing or damaged."""
    file = _opened_shared(path)
    if file is None or _is_sound(file, digest):
        return file
    file.close()
    return None


def _is_at(file: BufferedReader, path: Path) -> bool:
    """Return whether the open file is still the one at `path`."""
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _removed(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        if try_lock(file) and _is_at(file, path):
            path.unlink()
            return True
    return False


def _is_sound(file: BufferedReader, digest: str) -> bool:
    """Return whether a file has this digest, or is the list of segments that has it."""
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return sha256 == digest or bool(_segments(file, digest))


def _segments(file: BufferedReader, digest: str) -> tuple[Segment, ...]:
    """Return the segments of a bundle; none if the file is an archive."""
    file.seek(0)
    return segments_in(file.read(MOST_LIST_BYTES + 1), digest)

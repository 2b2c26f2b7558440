"""Bundles on this machine: fetched once, verified before each use, dropped to make room.

So are the segments of a large bundle, each for itself.
"""

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path

import structlog
from forge_schema.code import BundleRefused
from forge_schema.model.bundles import MOST_LIST_BYTES, Segment, segments_in
from forge_schema.model.errors import ForgeError
from forge_schema.storage import Progress, keys

from forge_worker.files.small_files import try_lock
from forge_worker.prepare.archive import ArchiveLimits, extract, extract_files
from forge_worker.queue.objects import Objects
from forge_worker.transfers.threads import TRANSFERS

__all__ = ["BundleCache", "BundleCorrupt", "BundleRefused", "archive"]

DOWNLOADS = 2  # a second try if the content does not match its digest
SEGMENTS = 32  # so many are expected at once: a signed URL is to be used before it expires
LOCK_FILES = 64  # bundles that share a lock file are fetched one after the other
LOCK_SECONDS = 900.0
LOCK_POLL_SECONDS = 0.05
STALE_SECONDS = 3600.0

log = structlog.get_logger(__name__)


class BundleCorrupt(ForgeError):
    """The store's copy of a bundle does not match its digest."""

    code = "bundle_corrupt"


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

"""Pack a project's folder into one file; equal folders give equal bytes everywhere."""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from forge_schema.model.quantities import size_text
from forge_schema.zstd import CHECKED, ZstdFile

from forge_client import default_paths
from forge_client.errors import InvalidInput
from forge_client.project.listing import BundleEntry, Listing, not_packed, readable
from forge_client.project.scan import scan
from forge_client.uploads import Bundle, Progress

if TYPE_CHECKING:
    from forge_schema.model.stored import Segment

__all__ = ["Listing", "pack", "pack_listing", "scan"]

LARGEST_FILE = 8**11 - 1  # the limit of a tar header without extensions
BIGGEST_SHOWN = 5
# Of what was packed before; a change of the format, or of the level, is another folder's.
MOST_KEPT, KEPT_IN = 200, "1-3"


def packed_before(listing: Listing) -> Bundle | None:
    """Return what exactly these files were packed into, without its file; None if it is unknown."""
    with suppress(OSError, ValueError, TypeError):
        if fingerprint := listing.fingerprint:
            digest, *sizes, segments = json.loads((_kept() / fingerprint).read_bytes())
            size, unpacked_size, files = map(int, sizes)
            pairs = tuple(_segment(*pair) for pair in segments)
            return Bundle(digest, Path(), size, unpacked_size, files, pairs)
    return None


def _segment(sha256: str, nbytes: int) -> Segment:
    # Only what is large has some, and their model takes a while to import.
    from forge_schema.model.stored import Segment  # noqa: PLC0415

    return Segment(sha256=sha256, bytes=nbytes)


def remember(listing: Listing, bundle: Bundle) -> None:
    """Note what files were packed into, for `packed_before`; a disk that is full loses nothing."""
    fingerprint = listing.fingerprint
    if fingerprint is None:
        return
    segments = [(segment.sha256, segment.bytes) for segment in bundle.segments]
    about = (bundle.digest, bundle.size, bundle.unpacked_size, bundle.files, segments)
    with suppress(OSError), _partial(_kept() / fingerprint) as file:
        file.write(json.dumps(about).encode())
    with suppress(OSError):
        kept = sorted(_kept().iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[MOST_KEPT:]:
            path.unlink()


def _kept() -> Path:
    return default_paths.packed() / KEPT_IN


def pack(folder: Path, out: Path, *, limit_bytes: int, progress: Progress | None = None) -> Bundle:
    """Pack `folder` into `out`, completely or not at all.

    `limit_bytes` limits the total size of the files, before compression.

    Raises:
        InvalidInput: the folder is too large, or something in it cannot be packed.
    """
    return pack_listing(scan(folder), out, limit_bytes=limit_bytes, progress=progress)


def pack_listing(
    listing: Listing, out: Path, *, limit_bytes: int, progress: Progress | None = None
) -> Bundle:
    """Pack the result of `scan`, as `pack` does.

    Raises:
        InvalidInput: it is too large, or a file has changed since it was listed.
    """
    refuse_too_large(listing, limit_bytes)
    with _partial(out) as file:
        digest = _Digest(file)
        with (
            ZstdFile(  # type: ignore[call-overload]  # the stubs ask for close(), which is not called
                digest, "w", options=CHECKED
            ) as compressed,
            tarfile.open(
                mode="w|", fileobj=compressed, format=tarfile.PAX_FORMAT, encoding="utf-8"
            ) as tar,
        ):
            for entry in listing.links_last:
                add(tar, entry, progress)
    return Bundle(digest.hex(), out, digest.written, listing.total_bytes, len(listing.files))


def refuse_too_large(listing: Listing, limit_bytes: int) -> None:
    """Check the size of the files; `InvalidInput` if they are too large."""
    total = listing.total_bytes
    biggest = heapq.nlargest(BIGGEST_SHOWN, listing.files, key=lambda entry: entry.size)
    if total <= limit_bytes and all(entry.size <= LARGEST_FILE for entry in biggest):
        return
    shown = ", ".join(f"{entry.name} ({size_text(entry.size)})" for entry in biggest)
    raise not_packed(
        f"{listing.root} contains {size_text(total)}, more than the limit of"
        f" {size_text(limit_bytes)}; the biggest files: {shown}",
        code="bundle_too_large",
        hint="list files the job does not need in .forgeignore, or raise the limit",
    )


def add(tar: tarfile.TarFile, entry: BundleEntry, progress: Progress | None) -> None:
    """Add an entry to an archive.

    Raises:
        InvalidInput: the file has changed since it was listed, or cannot be read.
    """
    info = tarfile.TarInfo(entry.name)  # its defaults are mtime 0, uid 0, gid 0 and no names
    info.mode = 0o755 if entry.folder or entry.executable else 0o644
    if entry.link is not None:
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, entry.link
        tar.addfile(info)
        return
    if entry.folder:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    info.size = entry.size
    with readable(entry.name):
        file = entry.path.open("rb")
    with file:
        source = _Source(file, entry, progress)
        source.expect_unchanged()
        tar.addfile(info, source)  # type: ignore[arg-type]  # tarfile only reads from it
        source.expect_unchanged()


class _Source:
    """A file being packed, which must not change after it was listed."""

    def __init__(self, file: IO[bytes], entry: BundleEntry, progress: Progress | None) -> None:
        self._file, self._entry, self._progress = file, entry, progress

    def read(self, size: int) -> bytes:
        with readable(self._entry.name):
            data = self._file.read(size)
        if len(data) < size:
            raise self._changed()
        if self._progress:
            self._progress(len(data))
        return data

    def expect_unchanged(self) -> None:
        status = os.fstat(self._file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self._entry.size, self._entry.mtime_ns):
            raise self._changed()

    def _changed(self) -> InvalidInput:
        return not_packed(
            f"{self._entry.name} changed while it was packed",
            code="file_changed",
            hint="try again when nothing writes to the folder, or list the file in .forgeignore",
        )


class _Digest:
    """Writes to a file, and computes the SHA-256 and the length of the data."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.written = 0

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        self.written += len(data)
        return self._file.write(data)

    def hex(self) -> str:
        return self._sha256.hexdigest()


@contextmanager
def _partial(out: Path) -> Iterator[IO[bytes]]:
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)

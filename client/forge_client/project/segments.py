"""Pack a large folder into segments, of which an edit changes one or two.

The segments are one tar, cut between files: after a file whose path says so, and before one that
does not fit. A file larger than a segment is cut by size, from its beginning.
"""

import hashlib
import tarfile
from pathlib import Path

from forge_schema.model.bundles import MOST_SEGMENTS, SEGMENT_BYTES, list_digest
from forge_schema.model.stored import Segment, SegmentList
from forge_schema.zstd import frame

from forge_client.project.bundle import add, refuse_too_large
from forge_client.project.listing import BundleEntry, Listing, not_packed
from forge_client.uploads import Bundle, Progress

# On average. Where the limit cuts depends on what came before, so few segments should reach it.
USUAL_BYTES = SEGMENT_BYTES // 4
READ_BYTES = 1 << 20


def pack_segments(
    listing: Listing, folder: Path, *, limit_bytes: int, progress: Progress | None = None
) -> Bundle:
    """Pack the result of `scan` into files in a folder.

    Raises:
        InvalidInput: it is too large, or a file has changed since it was listed.
    """
    refuse_too_large(listing, limit_bytes)
    cutter = _Cutter(folder)
    tar = tarfile.TarFile(
        mode="w",
        fileobj=cutter,  # type: ignore[arg-type]  # tarfile only writes to it
        format=tarfile.PAX_FORMAT,
        encoding="utf-8",
        copybufsize=READ_BYTES,
    )
    for entry in listing.links_last:
        cutter.make_room(entry.size)
        add(tar, entry, progress)
        if _ends_segment(entry):
            cutter.cut()
    cutter.cut()
    # Not by closing the archive, whose padding depends on the size of all files.
    cutter.write(bytes(2 * tarfile.BLOCKSIZE))
    cutter.cut()
    return _bundle(listing, folder, cutter.segments)


def _bundle(listing: Listing, folder: Path, segments: list[Segment]) -> Bundle:
    if len(segments) > MOST_SEGMENTS:
        raise not_packed(
            f"{listing.root} is too large for a bundle",
            code="bundle_too_large",
            hint="list files the job does not need in .forgeignore",
        )
    digest = list_digest(SegmentList(segments=segments).dumped())
    size = sum(segment.bytes for segment in segments)
    files = len(listing.files)
    return Bundle(digest, folder, size, listing.total_bytes, files, tuple(segments))


def _ends_segment(entry: BundleEntry) -> bool:
    """Decide by the entry alone, so that an edit of others changes nothing.

    The larger the file, the likelier, so that segments have about the same size.
    """
    point = int.from_bytes(hashlib.sha256(entry.name.encode()).digest()[:8])
    return point * USUAL_BYTES < (entry.size + tarfile.BLOCKSIZE) << 64


class _Cutter:
    """Cuts what is written to it into segments, and stores them in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending = bytearray()
        self._written = 0
        self.segments: list[Segment] = []

    def tell(self) -> int:
        return self._written

    def write(self, data: bytes) -> int:
        self._written += len(data)
        self._pending += data
        while len(self._pending) >= SEGMENT_BYTES:
            self._store(SEGMENT_BYTES)
        return len(data)

    def make_room(self, size: int) -> None:
        """Begin a segment unless a file of this size fits into the current one."""
        if len(self._pending) + size > SEGMENT_BYTES:
            self.cut()

    def cut(self) -> None:
        """End the segment, unless it is empty."""
        if self._pending:
            self._store(len(self._pending))

    def _store(self, size: int) -> None:
        packed = frame(self._pending[:size])
        del self._pending[:size]
        sha256 = hashlib.sha256(packed).hexdigest()
        (self._folder / sha256).write_bytes(packed)
        self.segments.append(Segment(sha256=sha256, bytes=len(packed)))

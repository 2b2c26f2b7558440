"""The fetched parts of an input: a fetch that is interrupted goes on with the others."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock

from forge_schema.storage.manifest import Extent

from forge_worker.files.small_files import write_atomically
from forge_worker.transfers.fetching import FetchedFile
from forge_worker.transfers.threads import TRANSFERS, batches

PIECE = 1 << 20

Part = tuple[str, int]
"""The path of a file, and the offset of a part in it."""


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
        """Note a part that is in its place.

        Raises:
            OSError: the disk is full or faulty.
        """
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
        digests = dict(self._said())
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

    def _said(self) -> Iterator[tuple[Part, str]]:
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

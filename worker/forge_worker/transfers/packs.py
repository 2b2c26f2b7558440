"""Small files of a checkpoint in packs: an object for each would take far longer than its content.

A pack is an object of whole files, one after the other. It is stored once and never changed: later
checkpoints refer to what they still need of it, until that is less than half.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copies, read_at
from forge_worker.transfers.sending import FileSource

# A copy of a file of up to this size may be in a pack.
SMALL_BYTES = 1 << 20
# Each of the threads that send holds a pack in memory.
PACK_BYTES = 8 << 20
# So many new files are worth packs.
MANY = 64


def worn(files: Collection[Entry]) -> set[str]:
    """Return the paths of files in packs of which less than half is still used."""
    used: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    for entry in files:
        if entry.pack_bytes:
            used[entry.key, entry.pack_bytes].add((entry.at, entry.size))
    keys = {key for (key, size), parts in used.items() if 2 * sum(part for _, part in parts) < size}
    return {entry.path for entry in files if entry.key in keys}


def contents(files: Collection[Entry]) -> dict[str, Entry]:
    """Return what is stored and stays, by its SHA-256; nothing in chunks."""
    again = worn(files)
    return {
        entry.sha256: entry
        for entry in files
        if not entry.chunks and not entry.target and entry.path not in again
    }


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack to store, and the copies of the files in it, by path."""

    source: FileSource
    copies: Copies

    @property
    def entries(self) -> Iterator[Entry]:
        """Its files, once it is stored."""
        key, size, begins_at = self.source.keys[0], self.source.size, self.source.begins_at
        for path, copy in self.copies.items():
            at = copy.at - begins_at
            mtime_ns = copy.status[1]
            yield Entry(
                path, copy.size, copy.sha256, key, mtime_ns=mtime_ns, pack_bytes=size, at=at
            )


def packed(copies: Copies) -> Iterator[Pack]:
    """Pack copies of small files, as they lie one after the other in their file."""
    pack: Copies = {}
    begin = end = 0
    for path, copy in sorted(copies.items(), key=lambda item: item[1].at):
        if pack and (copy.at > end or copy.at + copy.size > begin + PACK_BYTES):
            yield Pack(_source(pack, begin, end), pack)
            pack = {}
        if not pack:
            begin = copy.at
        pack[path] = copy
        end = copy.at + copy.size
    if pack:
        yield Pack(_source(pack, begin, end), pack)


def _source(pack: Copies, begin: int, end: int) -> FileSource:
    path = next(copy.path for copy in pack.values())
    assert path is not None  # noqa: S101  what is stored already is in no pack
    size = end - begin
    return FileSource(
        "a pack of small files",
        size,
        lambda offset, size: read_at(path, begin + offset, size),
        max(1, size),
        open=partial(_opened, path),
        begins_at=begin,
    )


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    return path.open("rb")

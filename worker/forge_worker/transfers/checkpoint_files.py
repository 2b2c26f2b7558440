"""Store the files of a checkpoint: large ones in chunks, many small ones in packs."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import BinaryIO

from forge_schema.storage import Objects, ObjectTooLarge
from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copies, Copy, read_at
from forge_worker.transfers.sending import FileSender, FileSource, StoredChunks

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


class CheckpointFiles:
    """Stores what is not stored yet.

    Args:
        objects: the store.
        stored: what an interrupted checkpoint has stored already.
        chunk_bytes: the size of chunks.
        go_on: called before each piece; what it raises ends the transfer.
        may_pack: tells whether every worker can restore packs.
    """

    def __init__(
        self,
        objects: Objects,
        stored: StoredChunks,
        chunk_bytes: int,
        go_on: Callable[[], None],
        may_pack: Callable[[], bool],
    ) -> None:
        self._objects = objects
        self._stored = stored
        self._chunk_bytes = chunk_bytes
        self._go_on = go_on
        self._may_pack = may_pack
        # The size of the smallest file that the store refuses.
        self.too_large = inf
        self._packs = True

    def resume(self, files: Collection[Entry], after: str) -> None:
        """Go on after an earlier agent, which stored these files, and objects after this key."""
        self._stored.resume(_keys_in(files), after)

    def remember(self, files: Collection[Entry]) -> None:
        """Know that these files are stored, and that nothing else is."""
        self._stored.reset(_keys_in(files))

    def store(
        self, copies: Copies, known: Collection[Entry], key: Callable[[str], str]
    ) -> list[Entry]:
        """Store the content of files; `key` names objects by their SHA-256.

        `known` are files that are stored, some of which may have the same content.

        Raises:
            FileChanged: one was rewritten meanwhile.
            ObjectTooLarge: the store refuses one.
        """
        there = contents(known)
        same = {path: copy for path, copy in copies.items() if copy.is_stored}
        fresh = {path: copy for path, copy in copies.items() if path not in same}
        packs = self._packed(fresh)
        together = {path for pack in packs for path in pack.copies}
        old = fresh.keys() if self._stored.resumes else {entry.path for entry in known}
        sources = [
            self._source(path, fresh[path], is_new=path not in old)
            for path in fresh
            if path not in together
        ]
        sender = FileSender(self._objects, self._stored, key, self._go_on)
        sender.send([*sources, *(pack.source for pack in packs)])
        if any(pack.source.refused for pack in packs):
            # A proxy refuses what is larger than a file.
            self._packs = False
            return self.store(copies, known, key)
        entries = [self._entry(source, fresh[source.path].status[1]) for source in sources]
        entries += [entry for pack in packs for entry in pack.entries]
        for path, copy in same.items():
            entries.append(replace(there[copy.sha256], path=path, mtime_ns=copy.status[1]))
        return entries

    def _packed(self, copies: Copies) -> list[Pack]:
        small = {path: copy for path, copy in copies.items() if copy.sha256 and copy.size}
        if len(small) < MANY or not self._packs or not self._may_pack():
            return []
        return list(packed(small))

    def _source(self, path: str, copy: Copy, *, is_new: bool) -> FileSource:
        return FileSource(
            path,
            copy.size,
            copy.read,
            self._chunk_bytes,
            open=copy.opened,
            begins_at=copy.at,
            is_new=is_new,
        )

    def _entry(self, source: FileSource, mtime_ns: int) -> Entry:
        if source.refused is not None:
            # The file is not read again until it is smaller.
            self.too_large = min(self.too_large, source.size)
            text = f"{source.path!r}: {source.refused.message}"
            raise ObjectTooLarge(text, hint=source.refused.hint)
        if source.chunked:
            return Entry.in_chunks(
                source.path, source.size, source.keys, self._chunk_bytes, mtime_ns
            )
        return Entry(source.path, source.size, source.digests[0], source.keys[0], mtime_ns=mtime_ns)


def _keys_in(files: Collection[Entry]) -> dict[str, str]:
    """Return the keys of whole objects by their SHA-256."""
    whole = (entry for entry in files if not entry.pack_bytes)
    return {part.sha256: part.key for entry in whole for part in entry.extents}

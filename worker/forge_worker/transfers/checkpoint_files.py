"""Store the files of a checkpoint: large ones in chunks, many small ones in packs."""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

from forge_schema.storage import ObjectTooLarge
from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copies, Copy
from forge_worker.queue.objects import Objects
from forge_worker.transfers.packs import MANY, Pack, contents, packed
from forge_worker.transfers.sending import FileSender, FileSource, StoredChunks


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
        sources = [self._source(path, fresh[path]) for path in fresh if path not in together]
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

    def _source(self, path: str, copy: Copy) -> FileSource:
        return FileSource(
            path, copy.size, copy.read, self._chunk_bytes, open=copy.opened, begins_at=copy.at
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

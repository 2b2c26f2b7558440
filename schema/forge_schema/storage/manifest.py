"""A checkpoint's manifest: its files and links, their digests and objects; and a job's code."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from forge_schema.model.bundles import MOST_LIST_BYTES, below_a_link, stays_inside
from forge_schema.model.errors import ForgeError
from forge_schema.model.stored import segments_in
from forge_schema.storage import keys
from forge_schema.storage.store import ObjectMissing, ObjectTooLarge, SmallReadable, Store, small

CHUNK_BYTES = 32 << 20
# Clients hold a chunk in memory, so nobody may name a larger one than workers make.
MOST_CHUNK_BYTES = CHUNK_BYTES

# The versions: each file is one object; large files are in chunks; small ones may be in packs.
WHOLE_FILES, IN_CHUNKS, IN_PACKS = 1, 2, 3
DIGEST = 64
TIME_NS = 1 << 63
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def is_code(digest: str, key: str, store: Store) -> bool:
    """Tell whether a key is the bundle with this digest, or one of its segments."""
    if not key.startswith(keys.SEGMENTS):
        return key == keys.bundle(digest)
    try:
        return key in _segments(store, digest)  # type: ignore[arg-type]  # a protocol has no hash
    except ObjectMissing:
        return False


# A bundle never changes, and its segments are asked for in many requests.
@lru_cache(maxsize=64)
def _segments(store: Store, digest: str) -> frozenset[str]:
    """Return the keys of a bundle's segments."""
    key = keys.bundle(digest)
    size = store.size(key)
    listed = store.get(key) if size is not None and size <= MOST_LIST_BYTES else b""
    if not (segments := segments_in(listed, digest)):
        raise ObjectMissing(f"{key} is no list of segments")
    return frozenset(keys.segment(segment.sha256) for segment in segments)


def tree_digest(chunks: Iterable[str]) -> str:
    """Return the digest of a file in chunks: the SHA-256 of the chunks' SHA-256, one by one."""
    return hashlib.sha256(b"".join(map(bytes.fromhex, chunks))).hexdigest()


class CheckpointUnsound(ForgeError):
    """A stored checkpoint does not match its manifest, or the manifest is invalid."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A part of a file that is one object; `offset` and `size` are in bytes.

    With `pack_bytes`, it is a part of an object of this size, from `at` on.
    """

    offset: int
    size: int
    sha256: str
    key: str
    at: int = 0
    pack_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or a link. `path` is relative with forward slashes; `size` is in bytes.

    A file is the object `key`, or consists of the objects `chunks`, each of `chunk_bytes` except
    the last; then `sha256` is the digest of their digests. A small one may be a part of the object
    `key`, a pack of `pack_bytes`, from `at` on. `mtime_ns` is the time of its last change, if it is
    known; the same file with another time is the same entry. A link has a `target`, and neither
    content nor objects.
    """

    path: str
    size: int
    sha256: str
    key: str = ""
    chunks: tuple[str, ...] = ()
    chunk_bytes: int = 0
    mtime_ns: int | None = field(default=None, compare=False)
    target: str = ""
    pack_bytes: int = 0
    at: int = 0

    @classmethod
    def in_chunks(
        cls,
        path: str,
        size: int,
        chunks: Sequence[str],
        chunk_bytes: int,
        mtime_ns: int | None = None,
    ) -> "Entry":
        """Return a file whose chunks have these keys, each of which ends in its SHA-256."""
        digest = tree_digest(key[-DIGEST:] for key in chunks)
        return cls(path, size, digest, "", tuple(chunks), chunk_bytes, mtime_ns)

    @classmethod
    def link(cls, path: str, target: str) -> "Entry":
        """Return a symbolic link."""
        return cls(path, 0, "", target=target)

    @property
    def objects(self) -> tuple[str, ...]:
        """The keys of the objects that it consists of."""
        return () if self.target else self.chunks or (self.key,)

    @property
    def extents(self) -> list[Extent]:
        """Its parts, in order."""
        if self.target:
            return []
        if not self.chunks:
            return [Extent(0, self.size, self.sha256, self.key, self.at, self.pack_bytes)]
        offsets = range(0, self.size, self.chunk_bytes)
        return [
            Extent(offset, min(self.chunk_bytes, self.size - offset), key[-DIGEST:], key)
            for offset, key in zip(offsets, self.chunks, strict=True)
        ]

    def dumped(self, packs: dict[str, int]) -> dict[str, object]:
        """Serialise it; `packs` has the place of each pack in the list of them."""
        if self.target:
            return {"path": self.path, "target": self.target}
        fields: dict[str, object] = {"path": self.path, "size": self.size, "sha256": self.sha256}
        # A file system keeps later ones, of which no reader of a manifest would take any.
        if self.mtime_ns is not None and _is_time(self.mtime_ns):
            fields["mtime_ns"] = self.mtime_ns
        if self.pack_bytes:
            return {**fields, "pack": packs[self.key], "at": self.at}
        if not self.chunks:
            return {**fields, "key": self.key}
        return {**fields, "chunks": list(self.chunks), "chunk_bytes": self.chunk_bytes}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files and links of a checkpoint, by path."""

    files: tuple[Entry, ...]

    @property
    def count(self) -> int:
        """The number of files, without the links."""
        return sum(not entry.target for entry in self.files)

    @property
    def size(self) -> int:
        """The total size of the files in bytes."""
        return sum(entry.size for entry in self.files)

    def dumped(self) -> bytes:
        """Serialise it, in the oldest version that can represent it."""
        version = IN_CHUNKS if any(entry.chunks for entry in self.files) else WHOLE_FILES
        sizes = {entry.key: entry.pack_bytes for entry in self.files if entry.pack_bytes}
        places = {key: place for place, key in enumerate(sizes)}
        fields: dict[str, object] = {
            "version": IN_PACKS if sizes else version,
            "files": [entry.dumped(places) for entry in self.files if not entry.target],
        }
        if sizes:
            fields["packs"] = [{"key": key, "bytes": size} for key, size in sizes.items()]
        if links := [entry.dumped(places) for entry in self.files if entry.target]:
            fields["links"] = links
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def loaded(cls, data: bytes, *, job_id: int) -> "Manifest":
        """Parse the manifest of a job's checkpoint, which may refer only to the job's objects.

        Raises:
            CheckpointUnsound: it is not a manifest, a path or a link in it would leave the folder,
                a path lies below a link, or a file is not the job's.
        """
        try:
            document = json.loads(data)
            if document["version"] not in {WHOLE_FILES, IN_CHUNKS, IN_PACKS}:
                raise CheckpointUnsound("the checkpoint's manifest has another version")
            links = [Entry.link(row["path"], row["target"]) for row in document.get("links", ())]
            packs = document.get("packs", ())
            files = (*(_entry(row, packs) for row in document["files"]), *links)
            faults = [fault for entry in files if (fault := _fault(entry, job_id))]
            faults += _misplaced(files)
        except UNREADABLE as error:
            raise CheckpointUnsound("the checkpoint's manifest cannot be read") from error
        if faults:
            raise CheckpointUnsound(faults[0])
        return cls(files)


def chunk_list(store: SmallReadable, key: str) -> Entry:
    """Read the list of an artifact's chunks.

    Raises:
        ObjectMissing: it does not exist.
        CheckpointUnsound: it is damaged, or names objects of another job.
    """
    try:
        (entry,) = Manifest.loaded(small(store, key), job_id=int(key.split("/")[1])).files
    except (CheckpointUnsound, ObjectTooLarge, ValueError) as error:
        raise CheckpointUnsound(f"the list of chunks {key} is damaged") from error
    if entry.target:
        raise CheckpointUnsound(f"the list of chunks {key} is damaged")
    return entry


def joined(files: Mapping[int, Iterable[Entry]], rank: int) -> list[tuple[int, Entry]]:
    """Join the files of all ranks, as a rank is to have them.

    Where two ranks have stored the same path, or one a file and the other a folder, its own comes
    first, then that of the lowest rank.
    """
    chosen: dict[str, tuple[int, Entry]] = {}
    folders: set[str] = set()
    for by in sorted(files, key=lambda other: (other != rank, other)):
        for entry in files[by]:
            above = {str(folder) for folder in PurePosixPath(entry.path).parents}
            if {entry.path, *above}.isdisjoint(chosen) and entry.path not in folders:
                chosen[entry.path] = by, entry
                folders |= above
    return list(chosen.values())


def _entry(row: dict[str, Any], packs: Sequence[dict[str, Any]]) -> Entry:
    if (place := row.pop("pack", None)) is not None:
        row["key"], row["pack_bytes"] = packs[place]["key"], packs[place]["bytes"]
    return Entry(**{**row, "chunks": tuple(row.get("chunks", ())), "target": ""})


def _misplaced(files: Sequence[Entry]) -> list[str]:
    """Return what is wrong with the paths of files and links together."""
    links = {str(PurePosixPath(entry.path)) for entry in files if entry.target}
    twice = links & {str(PurePosixPath(entry.path)) for entry in files if not entry.target}
    below = below_a_link((entry.path for entry in files), links)
    return [f"{path!r} is both a file and a link" for path in sorted(twice)[:1]] + (
        [f"{below!r} lies below a link"] if below else []
    )


def _fault(entry: Entry, job_id: int) -> str | None:
    path = PurePosixPath(entry.path)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in entry.path:
        return f"{entry.path!r} would leave the checkpoint's folder"
    if entry.target or not entry.sha256:
        inside = stays_inside(entry.path, entry.target)
        return None if inside else f"the link {entry.path!r} would leave the checkpoint's folder"
    if entry.mtime_ns is not None and not _is_time(entry.mtime_ns):
        return f"{entry.path!r} has a time that no file can have"
    if not all(key.startswith(f"jobs/{job_id}/") for key in entry.objects):
        return f"{entry.path!r} has objects that are not the job's"
    if entry.chunks and (
        not 0 < entry.chunk_bytes <= MOST_CHUNK_BYTES
        or -(-entry.size // entry.chunk_bytes) != len(entry.chunks)
    ):
        return f"{entry.path!r} does not consist of its chunks"
    return None if _fits_its_pack(entry) else f"{entry.path!r} is not in its pack"


def _is_time(mtime_ns: int) -> bool:
    return -TIME_NS < mtime_ns < TIME_NS


def _fits_its_pack(entry: Entry) -> bool:
    if not entry.pack_bytes:
        return not entry.at
    ends = entry.at + entry.size
    inside = 0 <= entry.at <= ends <= entry.pack_bytes <= MOST_CHUNK_BYTES
    return inside and not entry.chunks


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

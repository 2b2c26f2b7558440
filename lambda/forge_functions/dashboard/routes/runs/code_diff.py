"""How the code of two jobs differs, within limits: a page stays small whatever bundles hold.

Nothing of a bundle is written to a disk. Of each a bounded part is read, of that less is kept, and
comparing ends after a while: lines can be chosen such that it takes hours. Of large bundles, only
the segments that one of them has alone are read: the files of the others are the same.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import islice
from time import monotonic

from forge_schema.code import (
    BLOCK,
    BundleRefused,
    Header,
    TarStream,
    TooDifferent,
    differences,
    in_order,
    link_content,
)
from forge_schema.model.bundles import MOST_LIST_BYTES
from forge_schema.model.stored import segments_in
from forge_schema.storage import Store, StoreError, keys
from forge_schema.zstd import frame

# Of each bundle: as it is stored, unpacked, and its text that is kept in memory, in all and a file.
PACKED, UNPACKED, KEPT, FILE = 32 << 20, 64 << 20, 8 << 20, 256 << 10
ENTRIES = 5000
# What is shown: files, lines of all of them, characters of a line.
FILES, LINES, WIDTH = 50, 2000, 400
PATIENCE_S = 2.0
# What ends an archive, which a segment of one lacks.
END = frame(bytes(2 * BLOCK))


class TooLarge(Exception):
    """There is more than a page compares."""


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle; one that is too large to be compared has no content."""

    digest: bytes
    content: bytes | None = field(compare=False)


@dataclass(frozen=True)
class Changed:
    """A file that differs, and the lines of its diff; `cut` if it has more, or is not compared."""

    name: str
    lines: list[str]
    cut: bool = False


@dataclass(frozen=True)
class CodeDiff:
    """The files that differ, and how many more there are; or why none can be shown."""

    files: list[Changed] = field(default_factory=list)
    left_off: int = 0
    large: bool = False
    unread: bool = False


def code_diff(store: Store, first: str, second: str) -> CodeDiff:
    """Compare the bundles with two digests."""
    try:
        before, after = _objects(store, first), _objects(store, second)
        return compared(
            contents(store, {key: before[key] for key in before if key not in after}),
            contents(store, {key: after[key] for key in after if key not in before}),
        )
    except TooLarge:
        return CodeDiff(large=True)
    except (BundleRefused, StoreError):
        return CodeDiff(unread=True)


def contents(store: Store, objects: Mapping[str, int]) -> dict[str, BundleFile]:
    """Return the files by name of a bundle, or of segments of it, by their keys and sizes.

    Raises:
        TooLarge: there are too many, they are too large, or a segment has a part of one.
        BundleRefused: it is damaged.
        StoreError: it cannot be read.
    """
    if sum(objects.values()) > PACKED:
        raise TooLarge
    try:
        return _files(store, objects)
    except BundleRefused as error:
        if any(map(_is_segment, objects)):
            # It begins or ends within a file that is larger than a segment.
            raise TooLarge from error
        raise


def _files(store: Store, objects: Iterable[str]) -> dict[str, BundleFile]:
    files: dict[str, BundleFile] = {}
    unpacked = kept = number = 0
    for stream, entry in _entries(store, objects):
        unpacked, number = unpacked + entry.size, number + 1
        if unpacked > UNPACKED or number > ENTRIES:
            raise TooLarge
        if entry.link is not None:
            text = link_content(entry.link)
            files[entry.name] = BundleFile(sha256(text).digest(), text)
        elif not entry.folder:
            keep = entry.size <= FILE and kept + entry.size <= KEPT
            kept += entry.size * keep
            files[entry.name] = _held(stream, entry.size, keep=keep)
    return files


def _entries(store: Store, objects: Iterable[str]) -> Iterator[tuple[TarStream, Header]]:
    for key in objects:
        with closing(store.stream(key)) as pieces:
            end = [BytesIO(END)] if _is_segment(key) else []
            stream = TarStream([_Stored(pieces), *end])
            yield from ((stream, entry) for entry in stream.headers())


def _objects(store: Store, digest: str) -> dict[str, int]:
    """Return the keys and sizes of the objects of a bundle: of its segments, if it has some."""
    key = keys.bundle(digest)
    size = store.size(key) or 0
    listed = segments_in(store.get(key), digest) if size <= MOST_LIST_BYTES else ()
    return {keys.segment(segment.sha256): segment.bytes for segment in listed} or {key: size}


def _is_segment(key: str) -> bool:
    return key.startswith(keys.SEGMENTS)


class _Stored:
    """An object that is read piece by piece."""

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._piece = BytesIO()

    def read(self, size: int, /) -> bytes:
        while not (data := self._piece.read(size)):
            if (more := next(self._pieces, None)) is None:
                break
            self._piece = BytesIO(more)
        return data


def _held(stream: TarStream, size: int, *, keep: bool) -> BundleFile:
    digest, content = sha256(), bytearray()
    for chunk in stream.content(size):
        digest.update(chunk)
        content += chunk if keep else b""
    return BundleFile(digest.digest(), bytes(content) if keep else None)


def compared(before: Mapping[str, BundleFile], after: Mapping[str, BundleFile]) -> CodeDiff:
    """Return the differences of the files of two bundles."""
    names = in_order(name for name in {*before, *after} if before.get(name) != after.get(name))
    late = partial(_is_late, monotonic() + PATIENCE_S)
    files: list[Changed] = []
    room = LINES
    for number, name in enumerate(names):
        if number >= FILES or room <= 0 or late():
            return CodeDiff(files, len(names) - number)
        files.append(_changed(name, before.get(name), after.get(name), room, late))
        room -= len(files[-1].lines)
    return CodeDiff(files)


def _changed(
    name: str,
    before: BundleFile | None,
    after: BundleFile | None,
    room: int,
    late: Callable[[], bool],
) -> Changed:
    if any(file and file.content is None for file in (before, after)):
        return Changed(name, [], cut=True)
    old, new = (file.content if file else None for file in (before, after))
    try:
        lines = [*islice(differences(name, old, new, late=late), room + 1)]
    except TooDifferent:
        return Changed(name, [], cut=True)
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines[:room]]
    return Changed(name, shown, cut=len(lines) > room)


def _is_late(end: float) -> bool:
    return monotonic() > end

"""How the code of two jobs differs, within limits: a page stays small whatever bundles hold.

Nothing of a bundle is written to a disk. Of each a bounded part is read, of that less is kept, and
comparing ends after a while: lines can be chosen such that it takes hours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import islice
from time import monotonic

from forge_schema.code.comparison import TooDifferent, differences, in_order
from forge_schema.code.tar_stream import BundleRefused, TarStream
from forge_schema.storage import Store, StoreError

# Of each bundle: as it is stored, unpacked, and its text that is kept in memory, in all and a file.
PACKED, UNPACKED, KEPT, FILE = 8 << 20, 64 << 20, 8 << 20, 256 << 10
ENTRIES = 5000
# What is shown: files, lines of all of them, characters of a line.
FILES, LINES, WIDTH = 50, 2000, 400
PATIENCE_S = 2.0
ZSTD = b"\x28\xb5\x2f\xfd"


class TooLarge(Exception):
    """There is more than a page compares."""


@dataclass(frozen=True)
class Held:
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
    """Compare the bundles with two keys."""
    try:
        return compared(contents(store, first), contents(store, second))
    except TooLarge:
        return CodeDiff(large=True)
    except (BundleRefused, StoreError):
        return CodeDiff(unread=True)


def contents(store: Store, key: str) -> dict[str, Held]:
    """Return the files of a bundle by name.

    Raises:
        TooLarge: there are too many, or they are too large.
        BundleRefused: it is damaged.
        StoreError: it cannot be read.
    """
    if (store.size(key) or 0) > PACKED:
        raise TooLarge
    data = store.get(key)
    if not data.startswith(ZSTD):
        # Of a large project, this is a list of segments, which only the commands join.
        raise TooLarge
    stream = TarStream([BytesIO(data)])
    found: dict[str, Held] = {}
    unpacked = kept = 0
    for number, entry in enumerate(stream.headers()):
        unpacked += entry.size
        if unpacked > UNPACKED or number >= ENTRIES:
            raise TooLarge
        if not entry.folder:
            keep = entry.size <= FILE and kept + entry.size <= KEPT
            kept += entry.size * keep
            found[entry.name] = _held(stream, entry.size, keep=keep)
    return found


def _held(stream: TarStream, size: int, *, keep: bool) -> Held:
    digest, content = sha256(), bytearray()
    for chunk in stream.content(size):
        digest.update(chunk)
        content += chunk if keep else b""
    return Held(digest.digest(), bytes(content) if keep else None)


def compared(before: Mapping[str, Held], after: Mapping[str, Held]) -> CodeDiff:
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
    name: str, before: Held | None, after: Held | None, room: int, late: Callable[[], bool]
) -> Changed:
    if any(one and one.content is None for one in (before, after)):
        return Changed(name, [], cut=True)
    old, new = (one.content if one else None for one in (before, after))
    try:
        lines = [*islice(differences(name, old, new, late=late), room + 1)]
    except TooDifferent:
        return Changed(name, [], cut=True)
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines[:room]]
    return Changed(name, shown, cut=len(lines) > room)


def _is_late(end: float) -> bool:
    return monotonic() > end
